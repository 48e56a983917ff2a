import json
from pathlib import Path

import pytest

import fedfeast
from fedfeast.server import progress
from fedfeast.server.progress import RoundReader, State, is_at_work, state_of


def line(number: int, **more: object) -> str:
    row = {"round": number, "losses": {"teacher": 1.5}, "clients": [3, 4], "payload_parameters": 10, "seconds": 0.5}
    return json.dumps({**row, **more}) + "\n"


def test_lines_are_read_as_they_come(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    reader = RoundReader(file)
    assert reader.refresh() == ()
    file.write_text(line(1) + line(2)[:20])
    assert [row["round"] for row in reader.refresh()] == [1]
    file.write_text(line(1) + line(2, validation_score=0.25))
    assert reader.refresh()[1] == {
        "round": 2,
        "losses": {"teacher": 1.5},
        "validation_score": 0.25,
        "clients": 2,
        "payload_parameters": 10,
        "seconds": 0.5,
    }


def test_a_resumed_run_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    reader = RoundReader(file)
    file.write_text("".join(map(line, (1, 2, 3))))
    assert len(reader.refresh()) == 3
    file.write_text(line(1))
    assert [row["round"] for row in reader.refresh()] == [1]
    file.write_text("".join(map(line, (1, 2, 3))))
    reader.refresh()
    file.write_text(line(1) + line(2, seconds=0.25) + "".join(map(line, (3, 4, 5))))  # cut back and grown between looks
    assert [row["round"] for row in reader.refresh()] == [1, 2, 3, 4, 5]


def test_a_damaged_line_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(line(1) + '{"round": null}\n[]\nnothing\n' + line(2))
    assert [row["round"] for row in RoundReader(tmp_path / "metrics.jsonl").refresh()] == [1, 2]


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
