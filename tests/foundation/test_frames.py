import sys

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.frames import frame_of

ROWS = [{"name": "a", "value": 1.5}, {"name": "b", "value": 2.5}]


def test_rows_become_a_frame() -> None:
    assert frame_of(ROWS).to_dict("records") == ROWS
    assert frame_of(ROWS, "name").value["b"] == 2.5
    assert frame_of([], "name").empty


def test_without_pandas_the_sentence_says_what_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidInput, match=r"fedfeast\[notebook\]'; without it curve\.table\(\) has the same"):
        frame_of(ROWS, without="curve.table()")
