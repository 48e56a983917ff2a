"""FedAvg at five sizes and clients that train alone, side by side."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import TINY

from fedfeast.recipes import load_recipe
from fedfeast.studies import StudyOptions
from fedfeast.studies.alone import ClientAlone
from fedfeast.studies.catalogue.one_size import ONE_SIZE
from fedfeast.studies.entry import study
from fedfeast.studies.results import Results


def test_five_sizes_are_the_anchors() -> None:
    arms = ONE_SIZE.arms(lambda settings: load_recipe("cifar100-paper", settings))
    assert len(arms) == 6
    assert arms[0].name == "feast"
    sizes = [arm.settings["method.max_macs"] for arm in arms[1:]]
    assert sizes == sorted(set(sizes))
    assert arms[1].label.startswith("FedAvg, ")


def test_who_is_not_served_counts(make_up: Callable[..., Results]) -> None:
    results = make_up(ONE_SIZE)
    clients = tuple(
        ClientAlone(index, budget, 10, None if index == 0 else 1, 0.0 if index == 0 else 0.5)
        for index, budget in enumerate((1e6, 30e6, 60e6, 100e6))
    )
    one_size, alone = ONE_SIZE.conclude(replace(results, alone={0: clients})).tables
    score, of_served, served, compute = (cell.ours for cell in one_size.rows[-1].cells)
    assert score is not None
    assert of_served is not None
    assert served is not None
    assert (score.mean, of_served.mean, served.mean) == pytest.approx((37.5, 50.0, 75.0))
    assert compute is None
    assert [row.label for row in alone.rows] == ["1 to 1", "30 to 30", "60 to 60", "100 to 100"]
    assert len(ONE_SIZE.conclude(results).tables) == 1, "without clients that trained alone"


def test_it_runs_and_is_read_again(tmp_path: Path) -> None:
    settings = {**TINY, "training.clients_per_round": 2, "evaluation.every_rounds": 2}
    options = StudyOptions("digits", rounds=2, settings=settings)
    result = study("one-size", tmp_path / "one", options=options)
    labels = [row.label for row in result.findings.tables[0].rows]
    assert labels[0] == "FEAST"
    assert labels[-1] == "local training alone"
    assert len(result.results.alone[0]) == 2
    assert study("one-size", tmp_path / "one", options=options).findings == result.findings
