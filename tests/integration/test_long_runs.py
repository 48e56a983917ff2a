"""What stays of a long run under benchmarks/runs, and how kept runs are set side by side."""

import json
from pathlib import Path

import long_runs
import pytest
from tiny import TINY

import fedfeast


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[fedfeast.Run, Path]:
    folder = tmp_path_factory.mktemp("long")
    settings = {**TINY, "training.rounds": 4, "evaluation.every_rounds": 2, "data.folder": str(folder)}
    run = fedfeast.train("digits", folder / "run", settings)
    long_runs.keep(run, folder / "kept", "fedfeast train digits --out RUN")
    return run, folder / "kept"


def test_a_kept_run_has_its_curve_command_and_validated_rounds(kept: tuple[fedfeast.Run, Path]) -> None:
    run, folder = kept
    one = long_runs.LongRun(folder)
    assert one.facts["command"] == "fedfeast train digits --out RUN"
    assert one.facts["population_score"] == run.population_score
    assert one.curve == [(point.price, 100 * point.value) for point in run.curve.points]
    rounds = [json.loads(line)["round"] for line in (folder / "validated.jsonl").read_text().splitlines()]
    assert rounds == [2, 4]


def test_no_path_of_the_machine_is_kept(kept: tuple[fedfeast.Run, Path]) -> None:
    _, folder = kept
    told = "".join(file.read_text() for file in folder.iterdir())
    assert str(folder.parent) not in told
    assert 'folder = "DATA"' in told
    assert "platform" not in told


def test_a_name_that_is_taken_is_left_alone(kept: tuple[fedfeast.Run, Path]) -> None:
    run, folder = kept
    with pytest.raises(FileExistsError):
        long_runs.keep(run, folder, "another")
    assert long_runs.LongRun(folder).facts["command"] == "fedfeast train digits --out RUN"


def test_the_dip_is_from_a_network_to_the_next_larger_one(tmp_path: Path) -> None:
    curve = [{"price": place, "accuracy": value} for place, value in enumerate((0.5, 0.7, 0.66, 0.68, 0.6))]
    (tmp_path / "run.json").write_text(json.dumps({"curve": curve}))
    assert long_runs.LongRun(tmp_path).greatest_dip == pytest.approx(8.0)


def test_every_run_under_benchmarks_is_a_row_and_a_line(tmp_path: Path) -> None:
    runs = [long_runs.LongRun(folder) for folder in sorted(long_runs.KEPT.iterdir())]
    lines = long_runs.table(runs).splitlines()
    assert len(lines) == 3 + len(runs)
    assert len({line.count("|") for line in lines}) == 1
    for run in runs:
        facts = run.facts
        assert facts["rounds"] >= 400, run.folder
        assert facts["machine"]["device"], run.folder
        assert facts["command"], run.folder
    long_runs.draw(runs, tmp_path / "runs.png")
    assert (tmp_path / "runs.png").stat().st_size > 10_000
