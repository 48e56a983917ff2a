import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.planning.searching import search_recipe
from fedfeast.presentation.pictures import (
    clients_figure,
    coverage_figure,
    curve_figure,
    draw_curves,
    history_figure,
    latency_figure,
    search_figure,
)
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.folder import RunFolder


def made_up_run(folder: Path, recipe: str = "digits") -> Run:
    made = RunFolder.create(folder, load_recipe(recipe), threads=1, device="cpu")
    columns = {
        "budget_macs": [500.0, 1500.0, 9000.0],
        "target_share": [0.1, 0.3, 0.6],
        "realized_share": [0.2, 0.2, 0.6],
    }
    made.write_clients(columns)
    made.write_summary({"finished_rounds": 2}, Curve((CurvePoint("1k", 1000, 1, 0.5), CurvePoint("2k", 2000, 2, 0.75))))
    made.append_metrics({"round": 1, "losses": {"teacher": 2.0, "student": 1.0}})
    made.append_metrics({"round": 2, "losses": {"teacher": 1.0}, "validation_score": 0.4})
    return Run(made)


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    return [made_up_run(tmp_path / "one"), made_up_run(tmp_path / "two")]


def texts(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg")
    return text.getvalue()


def test_curves_of_several_runs_in_one_picture(runs: list[Run], tmp_path: Path) -> None:
    text = texts(curve_figure(runs))
    for label in ("one, feast: population score 41.7 %", "two, feast", "test accuracy (%)", "MACs per example"):
        assert label in text
    assert "the paper" not in text
    draw_curves(runs[:1], tmp_path / "curve.png")
    with Image.open(tmp_path / "curve.png") as picture:
        assert picture.width > 1000


def test_the_papers_anchors_stand_on_its_own_data_set_alone(runs: list[Run], tmp_path: Path) -> None:
    paper = made_up_run(tmp_path / "paper", "cifar100-paper")
    assert "the paper's FEAST, 4000 rounds" in texts(curve_figure([paper]))
    assert "the paper" not in texts(curve_figure([paper, runs[0]]))


def test_small_differences_do_not_fill_the_axis(runs: list[Run]) -> None:
    low, high = curve_figure(runs).axes[0].get_ylim()
    assert high - low > 25
    runs[0].folder.write_summary(
        {"finished_rounds": 2}, Curve((CurvePoint("1k", 1000, 1, 0.981), CurvePoint("2k", 2000, 2, 0.983)))
    )
    low, high = curve_figure(runs[:1]).axes[0].get_ylim()
    assert high - low == pytest.approx(10)
    assert high <= 101


def test_history_clients_coverage_and_search(runs: list[Run]) -> None:
    history = texts(history_figure(runs))
    assert all(label in history for label in ("one, feast, teacher", "mean training loss", "round"))
    clients = texts(clients_figure(runs[0]))
    assert all(label in clients for label in ("target share", "realized share", "share of all examples (%)"))
    parts = [{"stage": "stem", "block": 0, "data_share": 1.0}, {"stage": "stage1", "block": 1, "data_share": 0.25}]
    coverage = texts(coverage_figure(parts))
    assert all(label in coverage for label in ("stem", "stage1", "<!-- 25 -->", "<!-- 100 -->"))
    found = search_recipe(load_recipe("digits"), [2e5, 1e6]).distinct
    assert all(label in texts(search_figure(found)) for label in ("fitness", "extra blocks", "width index", "stage 3"))


def test_accuracy_against_latency() -> None:
    points = [{"name": f"{n}k", "median_ms": 2.0**n, "accuracy": 0.5 + n / 100} for n in range(1, 21)]
    text = texts(latency_figure({"points": points, "device": "a phone", "threads": 2}))
    for label in ("latency of one image (ms), a phone, 2 threads", "test accuracy (%)", "<!-- 1k -->", "<!-- 20k -->"):
        assert label in text
    assert "<!-- 2k -->" not in text, "not every point is named where there are many"


def test_the_line_joins_networks_that_no_faster_one_matches() -> None:
    accuracies, times = [0.5, 0.4, 0.7, 0.6], [1.0, 2.0, 3.0, 3.0]
    pairs = zip(accuracies, times, strict=True)
    points = [{"name": f"{accuracy}", "median_ms": ms, "accuracy": accuracy} for accuracy, ms in pairs]
    every, best = latency_figure({"points": points, "device": "a phone", "threads": 2}).axes[0].get_lines()
    assert np.asarray(every.get_xdata()).size == 4
    assert np.asarray(best.get_ydata()).tolist() == pytest.approx([50, 70])
