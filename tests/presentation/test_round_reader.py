import json
from pathlib import Path

from fedfeast.presentation.round_reader import RoundReader


def line(number: int, **more: object) -> str:
    row = {"round": number, "losses": {"teacher": 1.5}, "clients": [3, 4], "payload_parameters": 10, "seconds": 0.5}
    return json.dumps({**row, **more}) + "\n"


def test_lines_are_read_as_they_come(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    reader = RoundReader(file)
    assert reader.refresh() == ()
    file.write_text(line(1) + line(2)[:20])
    assert [row["round"] for row in reader.refresh()] == [1]
    sizes = [{"name": "1k", "macs": 1000, "value": 0.25}, {"name": "2k", "macs": 2000, "value": float("nan")}]
    file.write_text(line(1) + line(2, validation_score=0.25, validation_sizes=sizes))
    assert reader.refresh()[1] == {
        "round": 2,
        "losses": {"teacher": 1.5},
        "validation_score": 0.25,
        "sizes": sizes[:1],
        "clients": 2,
        "taking_part": {"clients": [3, 4]},
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
