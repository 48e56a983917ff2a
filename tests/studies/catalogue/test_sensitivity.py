from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fedfeast.recipes import Recipe, load_recipe
from fedfeast.studies.catalogue.sensitivity import DIRICHLET_SENSITIVITY, ZIPF_SENSITIVITY
from fedfeast.studies.results import Results

MakeUp = Callable[..., Results]


def test_every_exponent_has_a_population_and_the_papers_is_one_of_them() -> None:
    def resolve_with(recipe: str) -> Callable[[Mapping[str, Any]], Recipe]:
        return lambda settings: load_recipe(recipe, settings)

    arms = {arm.name: arm.settings for arm in ZIPF_SENSITIVITY.arms(resolve_with("cifar100-paper"))}
    assert len(arms) == 8
    assert arms["feast, s 0.8"]["population.exponent"] == 0.8
    assert arms["feast, s 1.2"] == {"method.name": "feast"}
    drawn = {arm.name: arm.settings for arm in ZIPF_SENSITIVITY.arms(resolve_with("digits"))}
    assert drawn["feast, s 1.2"]["population.exponent"] == 1.2


def test_zipf_at_the_anchors(make_up: MakeUp) -> None:
    anchors, extremes = ZIPF_SENSITIVITY.conclude(make_up(ZIPF_SENSITIVITY)).tables
    papers = {row.label: [cell.paper for cell in row.cells] for row in anchors.rows}
    assert papers["FEAST, s 1.2"][:5] == [64.89, 65.60, 71.82, 71.94, 71.06]
    assert papers["FEAST, s 0.8"] == [None] * 6
    assert [cell.paper for cell in extremes.rows[0].cells] == [70.29, 74.54]
    assert extremes.rows[0].cells[0].ours == extremes.rows[0].cells[1].ours, "made up without effect of s"


def test_dirichlet_changes_and_wins(make_up: MakeUp) -> None:
    results = make_up(DIRICHLET_SENSITIVITY)
    findings = DIRICHLET_SENSITIVITY.conclude(results)
    anchors, extremes, wins = findings.tables
    assert len(anchors.rows) == 8
    first, *_, last, change = anchors.rows[0].cells
    assert change.ours is not None
    assert first.ours is not None
    assert last.ours is not None
    assert change.ours.mean == pytest.approx(last.ours.mean - first.ours.mean)
    assert [[cell.paper for cell in row.cells] for row in extremes.rows] == [[5.77, 7.37], [21.25, 23.25]]
    (won,) = wins.rows[0].cells
    better = sum(
        feast.ours.mean > baseline.ours.mean  # type: ignore[union-attr]
        for feasts, baselines in zip(anchors.rows[:4], anchors.rows[4:], strict=True)
        for feast, baseline in zip(feasts.cells[:5], baselines.cells[:5], strict=True)
    )
    assert won.ours is not None
    assert won.ours.mean == better
    assert won.paper == 20.0
    assert "of 20" in wins.title
    assert [line.dashed for line in findings.plots[0].lines] == [False] * 4 + [True] * 4
