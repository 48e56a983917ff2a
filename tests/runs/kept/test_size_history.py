from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TINY

from fedfeast.runs import Run
from fedfeast.runs.kept.size_history import read_sizes

SHORT = {**TINY, "training.rounds": 3, "training.clients_per_round": 3, "evaluation.every_rounds": 2}
LARGEST = {"evaluation.selection": "largest"}


def train(folder: Path, sizes: Any, settings: dict[str, Any] | None = None) -> Run:
    return Run.create("digits", folder, {**SHORT, **(settings or {}), "evaluation.sizes": sizes}).train()


def without_times(run: Run) -> list[dict[str, Any]]:
    dropped = ("seconds", "validation_sizes")
    return [{key: value for key, value in row.items() if key not in dropped} for row in run.folder.metrics()]


def test_values_by_size_and_round() -> None:
    rows: list[dict[str, Any]] = [
        {"round": 1},
        {"round": 2, "validation_sizes": [{"name": "2k", "macs": 2000, "value": 0.5}]},
        {
            "round": 3,
            "validation_sizes": [
                {"name": "1k", "macs": 1000, "value": 0.25},
                {"name": "2k", "macs": 2000, "value": 0.75},
            ],
        },
    ]
    histories = read_sizes(rows)
    assert list(histories) == ["1k", "2k"]
    assert histories == {"1k": {3: 0.25}, "2k": {2: 0.5, 3: 0.75}}
    assert read_sizes(rows[:1]) == {}


@pytest.mark.parametrize("settings", [{}, LARGEST, {"server.average": 0.5}], ids=["score", "largest", "average"])
def test_sizes_change_nothing_else(tmp_path: Path, settings: dict[str, Any]) -> None:
    without, with_all = (train(tmp_path / sizes, sizes, settings) for sizes in ("none", "all"))
    assert without_times(without) == without_times(with_all)
    assert without.size_history == {}
    assert not any("validation_sizes" in row for row in without.folder.metrics())
    assert [list(history) for history in with_all.size_history.values()] == [[2, 3]] * 4
    states = [run.folder.checkpoints.load_latest()[0] for run in (without, with_all)]
    first, second = (state for state in states if state is not None and state.best is not None)
    assert first.best is not None
    assert second.best is not None
    assert torch.equal(first.flat, second.flat)
    assert torch.equal(first.best.flat, second.best.flat)
    assert (first.best.finished_rounds, first.best.score) == (second.best.finished_rounds, second.best.score)
    timed = "training_seconds"
    assert {**without.summary, timed: 0} == {**with_all.summary, timed: 0}


def test_values_are_those_of_the_validation_curve(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "all", LARGEST)
    best = run.summary["best_round"]
    measured = {point["name"]: point["value"] for point in run.summary["validation_curve"]}
    assert {name: history[best] for name, history in run.size_history.items()} == pytest.approx(measured)
    largest = next(reversed(run.size_history.values()))
    assert largest[best] == run.summary["validation_score"]


def test_by_default_all_are_kept_where_that_is_cheap_and_a_number_keeps_as_many(tmp_path: Path) -> None:
    cheap = Run.create("digits", tmp_path / "auto", {**SHORT, **LARGEST, "training.local_epochs": 20}).train()
    assert len(cheap.size_history) == 4
    assert list(train(tmp_path / "two", 2, LARGEST).size_history) == [
        list(cheap.size_history)[place] for place in (0, 3)
    ]


def test_where_clients_evaluate_the_sizes_are_those_that_they_are_asked_for(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "auto", {"evaluation.by": "clients"})
    row = run.folder.metrics()[-1]
    assert row["validation_sizes"]
    assert run.population_score > 0
    asked = {point.name for point in run.federation.method.operating_points()}
    assert {size["name"] for size in row["validation_sizes"]} <= asked
