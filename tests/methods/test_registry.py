import pytest

from fedfeast.errors import InvalidInput
from fedfeast.methods import METHODS, Feast, find_method


def test_methods_are_found_by_name_module_and_file() -> None:
    assert all(find_method(name) is method for name, method in METHODS.items())
    assert find_method("fedfeast.methods.feast:Feast") is Feast


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("feest", "'feest' is unknown \\(did you mean 'feast'"),
        ("heterofll", "did you mean 'heterofl'"),
        ("qqq", "is unknown: choose one of feast, heterofl"),
        ("nowhere.py:Mine", "nowhere.py, which is no Python file"),
        ("no_such_module:Mine", "'no_such_module', which cannot be imported"),
        ("fedfeast.methods.feast:Fest", "has no class Fest"),
        ("fedfeast.methods.feast:SliceMap", "has no class SliceMap derived from"),
    ],
)
def test_unknown_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        find_method(name)
