from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedfeast.data.tasks import task_named
from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.recipes import load_recipe
from fedfeast.studies.arms import Arm, method_arm
from fedfeast.studies.catalogue.baselines import POPULATION
from fedfeast.studies.catalogue.rules import TRAINING_RULES
from fedfeast.studies.results import Outcome, Results, extreme, published_of

FEAST, RIVAL = method_arm("feast"), method_arm("fedavg")


def outcome(arm: object, seed: int, *accuracies: float) -> Outcome:
    points = tuple(
        CurvePoint(str(position), 100_000 * position, 10, accuracy)
        for position, accuracy in enumerate(accuracies, start=1)
    )
    budgets = np.array([100_000.0, 250_000.0])
    return Outcome(arm, seed, load_recipe("digits"), Curve(points), budgets)  # type: ignore[arg-type]


@pytest.fixture
def results() -> Results:
    outcomes = (
        outcome(FEAST, 0, 0.5, 0.9, 0.8),
        outcome(FEAST, 1, 0.6, 1.0, 0.9),
        outcome(RIVAL, 0, 0.3),
        outcome(RIVAL, 1, 0.2),
    )
    return Results(load_recipe("digits"), outcomes)


def test_an_outcome_in_percent(results: Results) -> None:
    first = results.of("feast")[0]
    assert first.score == pytest.approx(70)  # one client gets the first point, the other the second
    assert (first.smallest, first.largest, first.best) == pytest.approx((50, 80, 90))
    assert first.at(199_999) == pytest.approx(50)
    assert first.at(99_999) is None


def test_a_cell_measures_seed_by_seed(results: Results) -> None:
    cell = results.cell(lambda one: one.largest, "feast", paper=80.0)
    assert cell.ours is not None
    assert cell.ours.mean == pytest.approx(85)
    assert cell.ours.count == 2
    assert cell.difference == pytest.approx(5)
    lead = results.cell(lambda feast, baseline: feast.largest - baseline.largest, "feast", "fedavg")
    assert lead.ours is not None
    assert lead.ours.mean == pytest.approx((50 + 70) / 2)
    assert results.cell(lambda one: one.at(1.0), "feast").ours is None


def test_a_measure_of_several_chooses_among_them(results: Results) -> None:
    least = results.cell(extreme(min, lambda one: one.largest), "feast", "fedavg")
    assert least.ours is not None
    assert least.ours.mean == pytest.approx(25)
    assert results.cell(extreme(max, lambda one: one.at(1.0)), "feast", "fedavg").ours is None


def test_the_compared_range_begins_with_the_smallest_cached_variant(results: Results) -> None:
    first = results.of("feast")[0]
    assert results.cached_macs[0] == 128_320
    assert results.first_compared(first) == pytest.approx(90)  # its point of 100k lies below
    assert results.change(first) == pytest.approx(-10)
    assert results.change(results.of("fedavg")[0]) is None


def test_the_papers_anchors_stand_where_the_cache_has_them(make_up: Callable[..., Results], results: Results) -> None:
    for dataset in ("cifar100", "cinic10", "tinyimagenet"):
        anchors = make_up(POPULATION, dataset).anchors
        assert [anchor.label for anchor in anchors] == ["25M", "50M", "229M", "408M", "596M"]
        assert anchors[0].budget_macs == 25e6
        assert 50.2e6 < anchors[1].budget_macs < 50.3e6
    assert [anchor.budget_macs for anchor in results.anchors] == [128_320, 347_264, 1_154_496, 1_776_576, 4_974_848]


def test_published_values_stand_at_the_papers_anchors_alone(make_up: Callable[..., Results], results: Results) -> None:
    ours = make_up(TRAINING_RULES)
    values = (1.0, 2.0, 3.0, 4.0, 5.0)
    assert [cell.paper for cell in ours.at_anchors("full", values)] == list(values)
    assert ours.line("full", published=values).published[0] == (25e6, 1.0)
    assert [cell.paper for cell in results.at_anchors("feast", values)] == [None] * 5
    assert results.line("feast", published=values).published == ()


def test_a_line_is_a_mean_over_seeds_at_measured_points(results: Results) -> None:
    line = results.line("feast")
    assert [point.macs for point in line.points] == [100_000, 200_000, 300_000]
    assert line.points[0].value == pytest.approx(55)
    assert line.points[0].spread == pytest.approx(50**0.5)
    assert line.label == "FEAST"
    assert line.colour != results.line("fedavg").colour


def test_published_numbers_by_data_and_key() -> None:
    assert published_of({"cifar100": {"feast": 1.0}}, "cifar100", "feast") == 1.0
    assert published_of({"cifar100": {"feast": 1.0}}, "cifar100", "mine") is None
    assert published_of({"cifar100": {"feast": 1.0}}, "digits", "feast") is None


def test_outcomes_of_which_less_is_better() -> None:
    bits = task_named("next-token").metric

    def of_bits(arm: Arm, *values: float) -> Outcome:
        made = outcome(arm, 0, *values)
        return replace(made, curve=replace(made.curve, metric=bits, unserved=6.0))

    ours, theirs = of_bits(FEAST, 3.0, 2.0, 2.5), of_bits(RIVAL, 3.5, 2.25)
    assert (ours.score, ours.smallest, ours.largest, ours.best) == (2.5, 3.0, 2.5, 2.0)
    assert ours.lead(ours.score, theirs.score) == pytest.approx(0.375)
    results = Results(load_recipe("digits"), (ours, theirs))
    assert results.change(ours) == -0.5, "2.0 in the compared range, and 2.5 at the end"
    assert (results.metric, results.measured_in, results.percent) == (bits, "test bits per symbol", "")
    plot = results.plot("one", "One", "", [results.line("feast")])
    assert plot.chart().y.label == "test bits per symbol (less is better)"
    tree = plot.to_tree()
    assert tree["lines"][0]["points"][0] == {"macs": 100_000, "value": 3.0, "spread": None}
    assert tree["metric"]["more_is_better"] is False
