from collections.abc import Callable

import pytest

from fedfeast.studies.catalogue.allocation import GAMMA
from fedfeast.studies.results import Results


def test_figure_1_sweeps_gamma(make_up: Callable[..., Results]) -> None:
    results = make_up(GAMMA, seeds=(0, 1))
    assert len(results.arms) == 5 + 3 * 2
    findings = GAMMA.conclude(results)
    largest, leads = findings.tables
    rows = {row.label: row.cells for row in largest.rows}
    assert [cell.paper for cell in rows["FEAST"]] == [58.96, 63.79, 65.76, 71.06, 74.83, 12.10]
    assert [cell.paper for cell in rows["HeteroFL"]] == [None, None, None, None, None, 20.66]
    assert rows["HeteroFL"][1].ours is None, "the baselines have gamma 0 and 1 alone"
    first, last, gain = (rows["FEAST"][position].ours for position in (0, 3, 5))
    assert first is not None
    assert last is not None
    assert gain is not None
    assert gain.mean == pytest.approx(last.mean - first.mean)
    assert [row.cells[0].paper for row in leads.rows] == [6.22, 2.41]
    by_method, of_feast = findings.plots
    assert [line.dashed for line in by_method.lines[:2]] == [False, True]
    assert all(point.macs >= results.cached_macs[0] for line in by_method.lines for point in line.points)
    assert of_feast.graded
    assert len(of_feast.lines) == 5
