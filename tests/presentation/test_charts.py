import json
from pathlib import Path

import pytest

from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.presentation.charts import (
    MOST_POINTS,
    clients_charts,
    coverage_charts,
    curve_charts,
    history_charts,
    thin,
)
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.folder import RunFolder
from fedfeast.studies.pictures import plot_charts
from fedfeast.studies.plots import Line, Plot, PlotPoint


def made_up_run(folder: Path, recipe: str = "digits") -> Run:
    made = RunFolder.create(folder, load_recipe(recipe), threads=1, device="cpu")
    shares = {"target_share": [0.6, 0.1, 0.3], "realized_share": [0.6, 0.2, 0.2]}
    made.write_clients({"name": ["a", "b", "c"], "budget_macs": [9000.0, 500.0, 1500.0], **shares})
    made.write_summary({"finished_rounds": 2}, Curve((CurvePoint("1k", 1000, 1, 0.5), CurvePoint("2k", 2000, 2, 0.75))))
    made.append_metrics({"round": 1, "losses": {"teacher": 2.0, "student": 1.0}})
    made.append_metrics({"round": 2, "losses": {"teacher": 1.0}, "validation_score": 0.4})
    return Run(made)


def test_curves_over_budgets(tmp_path: Path) -> None:
    curve, budgets = curve_charts([made_up_run(tmp_path / "one"), made_up_run(tmp_path / "two")])
    assert [one["label"] for one in curve["series"]][1] == "two, feast: population score 41.7 %"
    assert curve["series"][0]["points"] == [[1000, 50.0, 0, "1k"], [2000, 75.0, 0, "2k"]]
    assert (curve["x"]["scale"], curve["y"]["label"]) == ("log", "test accuracy (%)")
    assert (curve["x"]["min"], curve["x"]["max"]) == (budgets["x"]["min"], budgets["x"]["max"])
    assert sum(bar["value"] for bar in budgets["bars"]) == 3
    assert sum(bar["value"] for bar in budgets["bars"] if bar["muted"]) == 1, "below the smallest network"
    assert curve["anchors"] == []


def test_the_papers_anchors(tmp_path: Path) -> None:
    curve, _ = curve_charts([made_up_run(tmp_path / "one", "cifar100-paper")])
    assert len(curve["anchors"]) == 5
    assert curve["series"][-1]["mark"] == "diamond"
    assert curve["series"][-1]["points"][0][:2] == [25e6, 64.89]


def test_history(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "one")
    loss, score = history_charts([run])
    assert [one["label"] for one in loss["series"]] == ["one, feast, student", "one, feast, teacher"]
    assert score["series"][0]["points"] == [[2, 40.0]]
    (run.folder.path / "metrics.jsonl").write_text('{"round": 1, "losses": {"teacher": 2.0}}\n')
    assert len(history_charts([run])) == 1, "nothing is validated yet"


def test_clients_and_coverage(tmp_path: Path) -> None:
    (chart,) = clients_charts(made_up_run(tmp_path / "one"))
    assert [point[0] for point in chart["series"][0]["points"]] == [500, 1500, 9000]
    assert chart["series"][1]["points"][0] == [500.0, 20.0, 0, "b"]
    parts = [{"stage": "stem", "block": 0, "data_share": 0.5}, {"stage": "stage1", "block": 1, "data_share": 0.25}]
    assert coverage_charts(parts)[0]["values"] == [[50.0, None], [None, 25.0]]


@pytest.mark.parametrize("graded", [True, False])
def test_a_studys_curves(graded: bool) -> None:
    points = tuple(PlotPoint(25e6 * 2**step, 60.0 + step, 0.5) for step in range(2))
    lines = (Line("FEAST", points, 0, published=((25e6, 64.89),)), Line("HeteroFL", points, 1, dashed=True))
    (chart,) = plot_charts(Plot("name", "title", "caption", lines, 30e6, (25e6,), graded))
    feast, published, baseline, legend = chart["series"]
    assert feast["points"][0] == [25e6, 60.0, 0.5]
    assert published["colour"] == feast["colour"]
    assert baseline["dash"]
    assert baseline["colour"] == ("grade:1.000" if graded else 1)
    assert (legend["label"], legend["points"]) == ("the paper's", [])
    assert chart["shade"] == [{"to": 0.98 * 30e6}]
    json.dumps(chart)


def test_long_lines_are_thinned() -> None:
    points = [[number, 0.0] for number in range(5000)]
    kept = thin(points)
    assert len(kept) <= MOST_POINTS + 1
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert thin(points[:50]) == points[:50]
