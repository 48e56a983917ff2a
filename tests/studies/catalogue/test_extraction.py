from pathlib import Path

import numpy as np
import pytest

from fedfeast.planning.outline import outline
from fedfeast.recipes import load_recipe
from fedfeast.studies import StudyOptions, conclude_study, plan_study, train_study
from fedfeast.studies.catalogue.extraction import EXTRACTION, search_uncached, targets_of


def test_targets_are_the_papers_where_the_cache_spans_them() -> None:
    assert targets_of([24_967_328, 50_233_664, 595_791_168]) == tuple(macs * 1e6 for macs in range(26, 54, 2))
    targets = targets_of([100, 200, 300, 400, 900])
    assert len(targets) == 14
    assert targets == pytest.approx(np.linspace(100, 400, 16)[1:-1])


def test_networks_of_the_papers_space_that_nobody_cached() -> None:
    recipe = load_recipe("cifar100-paper")
    cached = {variant.macs for variant in outline(recipe).cache}
    targets = (34e6, 36e6)  # the fittest network within 36M is a cached one
    found = search_uncached(recipe, targets)
    assert tuple(found) == targets
    assert not cached & {variant.macs for variant in found.values()}
    assert all(0.9 * target < variant.macs <= target for target, variant in found.items())


def test_a_space_that_has_nothing_new_gives_nothing() -> None:
    recipe = load_recipe("digits")
    assert search_uncached(recipe, [128_320.0]) == {}  # the least network of all, which is cached


def test_gaps_are_those_to_the_interpolated_curve(tmp_path: Path) -> None:
    settings = {"training.clients_per_round": 4, "evaluation.every_rounds": 1}
    plan = plan_study(EXTRACTION, tmp_path / "study", StudyOptions("digits", 2, settings=settings))
    train_study(plan)
    result = conclude_study(plan)
    summary, details = result.findings.tables
    assert len(details.rows) == 14
    curve = result.results.outcomes[0].curve
    gaps = []
    for row in details.rows:
        macs, _, accuracy, on_curve, gap = (cell.ours.mean for cell in row.cells if cell.ours is not None)
        expected = np.interp(
            macs * 1e6, [point.macs for point in curve.points], [100 * point.accuracy for point in curve.points]
        )
        assert on_curve == pytest.approx(expected)
        assert gap == pytest.approx(accuracy - on_curve)
        gaps.append(abs(gap))
    mean = summary.rows[0].cells[1].ours
    assert mean is not None
    assert mean.mean == pytest.approx(np.mean(gaps))
    cached, extracted = result.findings.plots[0].lines
    assert (len(cached.points), len(extracted.points)) == (8, 14)
