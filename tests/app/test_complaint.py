import pytest

from fedfeast.app.complaint import print_error
from fedfeast.errors import InvalidInput


def test_one_sentence_on_standard_error_brackets_included(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(InvalidInput("stages = [1, 2] is too short: " + "give more " * 30))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: stages = [1, 2] is too short")
    assert printed.err.count("\n") == 1
