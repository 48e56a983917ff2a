import pytest

from fedfeast.data.reading.options import PrepareOptions, count_test
from fedfeast.errors import InvalidInput


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"task": "guessing"}, "--task guessing is no task: choose one of classification, next-token"),
        ({"kind": "sounds"}, "--kind sounds is no kind of data: choose one of images"),
        ({"test": "split", "test_share": 0.1}, "--test-share has no effect beside --test split"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        PrepareOptions(**options)  # type: ignore[arg-type]


def test_at_least_one_of_two_is_held_out_and_never_all() -> None:
    assert [count_test(0.2, members) for members in (1, 2, 3, 10)] == [0, 1, 1, 2]
    assert count_test(0.99, 10) == 9
