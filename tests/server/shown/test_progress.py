from pathlib import Path

import pytest

import fedfeast
from fedfeast.server.shown import progress
from fedfeast.server.shown.progress import State, is_at_work, state_of


@pytest.mark.parametrize(
    ("finished", "summarised", "locked", "expected"),
    [
        (0, None, False, "waiting"),
        (0, None, True, "training"),
        (5, None, True, "training"),
        (5, 5, False, "stopped"),
        (10, None, True, "evaluating"),
        (10, 5, False, "unevaluated"),
        (10, 10, False, "finished"),
    ],
)
def test_what_a_folder_says(
    tmp_path: Path, finished: int, summarised: int | None, locked: bool, expected: State
) -> None:
    folder = fedfeast.Run.create("digits", tmp_path / "run").folder
    if not locked:
        assert state_of(folder, finished, 10, summarised) == expected
        return
    with folder.locked():
        assert state_of(folder, finished, 10, summarised) == expected


def test_where_the_system_lists_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOCKS", tmp_path / "none")
    assert not is_at_work(tmp_path)
    (tmp_path / "metrics.jsonl").touch()
    assert is_at_work(tmp_path)
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1)
    assert not is_at_work(tmp_path)
