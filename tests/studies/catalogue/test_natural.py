"""Clients as the data have them: FEAST beside one size and pooled data, on made-up recordings."""

from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up import prepare

from fedfeast.errors import InvalidInput
from fedfeast.planning.outline import outline
from fedfeast.studies import StudyOptions, StudyResult, conclude_study, find_study, plan_study, train_study
from fedfeast.studies.catalogue.natural import (
    FEAST,
    NATURAL,
    POOLED,
    SINGLE,
    held_out_merits,
    larger_half_over_smallest,
    mean_and_error,
)
from fedfeast.studies.pairs import CLIENTS
from fedfeast.studies.report import write_study_report
from fedfeast.studies.results import Outcome

TINY: dict[str, Any] = {
    "training.clients_per_round": 2,
    "evaluation.every_rounds": 2,
    "data.validation_examples": 24,
    "data.calibration_examples": 12,
}


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> StudyOptions:
    data = tmp_path_factory.mktemp("data")
    name = {"data.name": prepare("speech", data), "data.folder": str(data)}
    return StudyOptions("audiomnist", rounds=4, settings={**TINY, **name})


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory, options: StudyOptions) -> StudyResult:
    plan = plan_study(NATURAL, tmp_path_factory.mktemp("studies") / "natural", options)
    train_study(plan)
    return conclude_study(plan)


def test_it_is_a_study_of_data_with_clients() -> None:
    assert find_study("natural") is NATURAL
    assert NATURAL.datasets == ("audiomnist", "motionsense", "shakespeare")
    with pytest.raises(InvalidInput, match="study natural runs on audiomnist, motionsense, shakespeare"):
        StudyOptions("digits").recipe(NATURAL, {})


def test_one_size_is_the_one_nearest_to_what_feast_serves_on_average(result: StudyResult) -> None:
    (feast,), (single,) = result.results.of(FEAST), result.results.of(SINGLE)
    served = [point.macs for budget in feast.budgets_macs if (point := feast.curve.serve(budget)) is not None]
    distances = {point.macs: abs(point.macs - np.mean(served)) for point in feast.curve.points}
    assert [point.macs for point in single.curve.points] == [min(distances, key=distances.__getitem__)]
    assert single.recipe.training.rounds == feast.recipe.training.rounds


def test_pooled_data_get_the_same_local_steps(result: StudyResult) -> None:
    (feast,), (pooled,) = result.results.of(FEAST), result.results.of(POOLED)
    natural, training = outline(feast.recipe).natural, feast.recipe.training
    assert natural is not None
    steps = 4 * 2 * np.mean([ceil(size / training.batch_size) for size in natural.sizes])
    of_a_round = ceil(natural.sizes.sum() / training.batch_size)
    assert pooled.recipe.training.rounds == max(1, round(steps / of_a_round))
    assert pooled.recipe.evaluation.every_rounds <= pooled.recipe.training.rounds
    assert pooled.budgets_macs.tolist() == [feast.recipe.population.greatest_macs]


def test_the_sizes_stand_beside_the_others(result: StudyResult) -> None:
    sizes, *_ = result.findings.tables
    feast, single = result.results.of(FEAST)[0], result.results.of(SINGLE)[0]
    assert len(sizes.rows) == len(feast.curve.points) >= 5
    for row, point in zip(sizes.rows, feast.curve.points, strict=True):
        held_out, error, known, fedavg, pooled, _ = (cell.ours for cell in row.cells)
        assert held_out is not None
        assert error is not None
        assert known is not None
        assert pooled is not None
        assert held_out.mean == pytest.approx(100 * point.value)
        assert (fedavg is not None) == (point.macs == single.curve.points[0].macs)


def test_gains_are_paired_over_held_out_clients(result: StudyResult) -> None:
    _, gains, _ = result.findings.tables
    (feast,), (single,) = result.results.of(FEAST), result.results.of(SINGLE)
    assert feast.run is not None
    values = np.array(list(feast.run.folder.client_values()["held-out clients"].values()))
    assert values.shape == (12, len(feast.curve.points))
    expected = 100 * (values[:, len(values[0]) - len(values[0]) // 2 :].mean(axis=1) - values[:, 0])
    mean, error = (cell.ours for cell in gains.rows[0].cells)
    assert mean is not None
    assert error is not None
    assert mean.mean == pytest.approx(expected.mean())
    assert error.mean == pytest.approx(expected.std(ddof=1) / np.sqrt(12))
    position = [point.macs for point in feast.curve.points].index(single.curve.points[0].macs)
    over = held_out_merits(feast)[:, position] - held_out_merits(single)[:, 0]
    third = gains.rows[2].cells[0].ours
    assert third is not None
    assert third.mean == pytest.approx(over.mean())


def test_arms_are_paired_over_held_out_clients_by_what_the_population_is_served(result: StudyResult) -> None:
    (feast,) = result.results.of(FEAST)
    assert {pair.arm.name: pair.reference.name for pair in result.pairs} == {SINGLE: FEAST, POOLED: FEAST}
    served = feast.curve.count_affordable(feast.budgets_macs)
    for pair in result.pairs:
        (other,) = result.results.of(pair.arm.name)
        theirs = other.curve.count_affordable(feast.budgets_macs)
        unserved = np.zeros((12, 1))  # right where nobody has a network

        def by_client(one: Outcome, counts: np.ndarray, unserved: np.ndarray = unserved) -> np.ndarray:
            return np.asarray(np.hstack([unserved, held_out_merits(one)])[:, counts].mean(axis=1))

        differences = by_client(other, theirs) - by_client(feast, served)
        assert (pair.paired_over, pair.difference.units) == (CLIENTS, 12)
        assert pair.difference.mean == pytest.approx(differences.mean())
        assert pair.difference.error == pytest.approx(differences.std(ddof=1) / np.sqrt(12))


def test_the_chart_has_a_line_an_arm_and_the_page_its_protocol(result: StudyResult) -> None:
    (plot,) = result.findings.plots
    assert [(len(line.points) == 1, line.dashed) for line in plot.lines] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    page, *_ = write_study_report(result)
    assert "the clients that the data have, budgets from Zipf" in page.read_text()
    assert any("FedAvg trains one network of" in note for note in result.findings.notes)


def test_what_has_one_client_or_none_has_no_error() -> None:
    assert mean_and_error(np.array([2.0, np.nan])) == (2.0, None)
    assert mean_and_error(np.array([np.nan])) == (None, None)
    assert mean_and_error(np.array([1.0, 3.0])) == (2.0, 1.0)


def test_where_less_is_better_a_gain_is_less(result: StudyResult) -> None:
    (outcome,) = result.results.of(FEAST)
    less = replace(outcome.curve, metric=replace(outcome.curve.metric, more_is_better=False))
    gains = larger_half_over_smallest(outcome)
    assert larger_half_over_smallest(replace(outcome, curve=less)) == pytest.approx(-gains)


def test_it_needs_held_out_clients(options: StudyOptions, tmp_path: Path) -> None:
    without = StudyOptions("audiomnist", 4, settings={**options.given(), "data.held_out_clients": 0.0})
    with pytest.raises(InvalidInput, match="study natural needs clients that never train"):
        plan_study(NATURAL, tmp_path / "study", without)
