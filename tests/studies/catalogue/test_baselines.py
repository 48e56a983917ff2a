from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.planning import plan_recipe
from fedfeast.recipes import Recipe, load_recipe
from fedfeast.studies.catalogue.baselines import CURVES, DENSITY, EQUAL_COMPUTE, POPULATION, restrict
from fedfeast.studies.results import Results
from fedfeast.studies.tables import Table

MakeUp = Callable[..., Results]


def curve(**accuracies: float) -> Curve:
    return Curve(tuple(CurvePoint(name, int(name[1:]), 1, one) for name, one in accuracies.items()))


def columns_of(table: Table, row: int) -> dict[str, Any]:
    return {column.heading: cell for column, cell in zip(table.columns, table.rows[row].cells, strict=True)}


def test_table_1_sets_scores_and_margin_beside_the_papers(make_up: MakeUp) -> None:
    results = make_up(POPULATION)
    population, wins = POPULATION.conclude(results).tables
    cells = columns_of(population, 0)
    assert [cell.paper for cell in cells.values()] == [41.50, 35.78, 55.13, 67.74, 12.61]
    scores = {name: cells[name].ours.mean for name in ("HeteroFL", "ScaleFL", "FIARSE", "FEAST")}
    assert scores["FEAST"] == pytest.approx(results.of("feast")[0].score)
    strongest = max(score for name, score in scores.items() if name != "FEAST")
    assert cells["FEAST's margin"].ours.mean == pytest.approx(scores["FEAST"] - strongest)
    assert "of 100" in wins.title
    assert all(0 < cell.ours.mean <= 100 for cell in columns_of(wins, 0).values())
    assert not wins.published
    (plot,) = POPULATION.conclude(results).plots
    assert [line.label for line in plot.lines] == ["HeteroFL", "ScaleFL", "FIARSE", "FEAST"]
    assert len(plot.lines[-1].published) == 5


def test_the_papers_other_data_sets_have_their_own_numbers(make_up: MakeUp) -> None:
    population = POPULATION.conclude(make_up(POPULATION, "cinic10")).tables[0]
    assert columns_of(population, 0)["FEAST"].paper == 80.96


def test_figure_2_reads_the_curves(make_up: MakeUp) -> None:
    (table,) = CURVES.conclude(make_up(CURVES)).tables
    rows = {row.label: row.cells for row in table.rows}
    smallest, largest, best, change = rows["FEAST"]
    assert [cell.paper for cell in rows["FEAST"]] == [64.89, 71.06, 72.61, 6.17]
    assert smallest.ours is not None
    assert largest.ours is not None
    assert change.ours is not None
    assert best.ours == largest.ours
    assert change.ours.mean == pytest.approx(largest.ours.mean - smallest.ours.mean)
    assert rows["the baselines' least"][3].paper == 20.07
    assert rows["the baselines' greatest"][3].paper == 44.03


def test_baselines_get_the_rounds_that_feasts_compute_pays_for() -> None:
    cheap = {"method.name": "fedavg"}  # stands for every baseline

    def resolve(settings: Mapping[str, Any]) -> Recipe:
        return load_recipe("digits", settings if settings["method.name"] == "feast" else cheap)

    arms = {arm.name: arm for arm in EQUAL_COMPUTE.arms(resolve)}
    feast, baseline = (plan_recipe("digits", settings)["compute"]["training_pmacs"] for settings in ({}, cheap))
    assert arms["heterofl"].settings["training.rounds"] == round(60 * feast / baseline)
    assert "training.rounds" not in arms["feast"].settings


def test_equal_compute_leads_and_wins(make_up: MakeUp) -> None:
    (table,) = EQUAL_COMPUTE.conclude(make_up(EQUAL_COMPUTE)).tables
    rows = {row.label: row.cells for row in table.rows}
    assert [cell.paper for cell in rows["HeteroFL"]] == [None, None, 44.44, 23.3, 100.0]
    assert rows["FEAST"][2].paper == 67.74
    assert rows["FEAST"][3].ours is None


def test_density_keeps_the_largest_point_within_each_tiers_least_budget() -> None:
    feast = curve(m10=0.5, m20=0.6, m30=0.7, m40=0.8, m50=0.9)
    baseline = curve(m5=0.1, m25=0.2, m45=0.3)
    budgets = np.array([12.0, 24.0, 31.0, 44.0, 60.0])
    # Tiers begin at budgets of 12, 31 and 60: FEAST keeps 10, 30 and 50.
    assert [point.macs for point in restrict(feast, baseline, budgets).points] == [10, 30, 50]
    # A tier that serves nobody, and clients that the baseline leaves out, keep nothing.
    assert [point.macs for point in restrict(feast, baseline, np.array([2.0, 12.0, 60.0])).points] == [10, 50]


def test_density_in_numbers(make_up: MakeUp) -> None:
    results = make_up(DENSITY)
    (table,) = DENSITY.conclude(results).tables
    for row, baseline in ((0, "heterofl"), (1, "scalefl")):
        cells = columns_of(table, row)
        feast, other = results.of("feast")[0], results.of(baseline)[0]
        restricted = 100 * restrict(feast.curve, other.curve, feast.budgets_macs).population_score(feast.budgets_macs)
        assert cells["FEAST, restricted (%)"].ours.mean == pytest.approx(restricted)
        assert cells["full cache adds"].ours.mean == pytest.approx(feast.score - restricted)
        kept = 100 * (restricted - other.score) / (feast.score - other.score)
        assert cells["margin kept (%)"].ours.mean == pytest.approx(kept)
    assert columns_of(table, 0)["full cache adds"].paper == 1.08
    assert columns_of(table, 1)["margin kept (%)"].paper == 98.0
