from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.own_code import find_own


def test_a_file_and_a_module_are_imported_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("found = []\n")
    assert find_own(f"{file}:found", "data") == []
    assert find_own(f"{file}:found", "data") is find_own(f"{file}:found", "data")
    assert find_own("pathlib:Path", "data") is Path
    assert find_own(f"{file}:missing", "data") is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.py:Mine", "method.name names the file nowhere.py, which is no Python file: give its path."),
        ("no_such_module:Mine", "method.name names the module 'no_such_module', which cannot be imported: "),
    ],
)
def test_what_is_not_there_is_named(source: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        find_own(source, "method.name")
    assert str(caught.value).startswith(message)
