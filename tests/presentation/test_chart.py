import json
import re
from typing import get_args

import pytest

from fedfeast.data import tasks
from fedfeast.presentation.assets import read_asset
from fedfeast.presentation.chart import (
    ACCURACY,
    DASHED,
    FILLED_MARKS,
    HEIGHT,
    Axis,
    Bar,
    Chart,
    HeatMap,
    Mark,
    Note,
    Point,
    Series,
    macs_axis,
    mark_of,
    metric_axis,
    published_series,
)
from fedfeast.presentation.pictures import MARKERS


def test_small_differences_do_not_fill_the_axis() -> None:
    assert ACCURACY.limits([98.1, 98.3]) == pytest.approx((96.7, 99.7))
    assert ACCURACY.limits([99.9, 100.0]) == pytest.approx((97.5, 100.5))
    low, high = ACCURACY.limits([40.0, 50.0, 80.0])
    assert (low, high) == pytest.approx((37.6, 82.4))


def test_limits_leave_room_and_keep_what_is_given() -> None:
    assert macs_axis().limits([1000.0, 2000.0]) == pytest.approx((1000 / 1.12, 2240))
    assert macs_axis().limits([1000.0]) == pytest.approx((1000 / 1.12, 1120))
    assert macs_axis(least=10, greatest=99).limits([1000.0]) == (10, 99)
    assert Axis("loss", floor=0).limits([0.01, 5.0])[0] == 0
    assert Axis("level").limits([3.0, 3.0]) == (3, 4)
    assert Axis("nothing yet").limits([])[0] < Axis("nothing yet").limits([])[1]
    assert macs_axis().limits([])[0] > 0


def test_bars_stand_on_zero() -> None:
    chart = Chart(macs_axis(), Axis("clients", "count", floor=0), bars=(Bar(1, 10, 4), Bar(10, 100, 7, muted=True)))
    assert chart.y_limits[0] == 0
    assert chart.spec()["bars"][1] == {"from": 10, "to": 100, "value": 7, "muted": True}


def test_a_spread_has_room() -> None:
    chart = Chart(macs_axis(), Axis("accuracy"), (Series("one", (Point(1, 50, 5), Point(2, 60, 5))),))
    assert chart.y_limits[0] < 45
    assert chart.y_limits[1] > 65


def test_a_chart_in_the_words_of_charts_js() -> None:
    plain = Series("plain", (Point(1e3, 50.0), Point(2e3, 60.0, 1.5), Point(3e3, 70.0, name="3k")))
    dashed = Series("dashed", (Point(1e3, 50.0),), "grey", "square", line=False, dash=DASHED, thin=True)
    chart = Chart(
        macs_axis(), ACCURACY, (plain, dashed), anchors=(2e3,), shade_to=1.5e3, notes=(Note(1e3, 50.0, "here"),)
    )
    spec = json.loads(json.dumps(chart.spec()))
    assert spec["kind"] == "xy"
    assert spec["series"][0] == {
        "label": "plain",
        "colour": 0,
        "points": [[1e3, 50.0], [2e3, 60.0, 1.5], [3e3, 70.0, 0.0, "3k"]],
    }
    look = {"colour": "grey", "mark": "square", "dash": "7 4", "thin": True, "line": False}
    assert spec["series"][1] == {"label": "dashed", "points": [[1e3, 50.0]], **look}
    assert (spec["anchors"], spec["shade"]) == ([2e3], [{"to": 1.5e3}])
    assert spec["notes"] == [{"x": 1e3, "y": 50.0, "text": "here"}]
    assert (spec["x"]["scale"], spec["x"]["format"], spec["x"]["unit"]) == ("log", "macs", "MACs")
    assert (spec["x"]["min"], spec["x"]["max"]) == chart.x_limits, "both renderers show the same range"
    assert (spec["y"]["min"], spec["y"]["max"]) == chart.y_limits
    assert "height" not in spec, "the page's width decides"
    assert Chart(macs_axis(), ACCURACY, height=HEIGHT + 1).spec()["height"] == HEIGHT + 1


def test_an_axis_that_begins_at_zero_says_so() -> None:
    assert Axis("round", "count", least=0, greatest=6, whole=True).spec([1.0])["min"] == 0


def test_a_heat_map_in_the_words_of_charts_js() -> None:
    spec = HeatMap("block", ("stem", "head"), ("0", "1"), ((50.0, None), (100.0, 25.0))).spec()
    assert json.loads(json.dumps(spec)) == {
        "kind": "grid",
        "rows": ["stem", "head"],
        "columns": ["0", "1"],
        "values": [[50.0, None], [100.0, 25.0]],
        "x": {"label": "block"},
    }


def test_series_are_told_apart_by_colour_or_mark() -> None:
    colours = len(re.findall(r"--series-\d:", read_asset("style.css")))
    assert len({(number % colours, mark_of(number)) for number in range(170)}) == 170
    assert len({mark_of(number) for number in range(17)}) == 17, "told apart without colours, too"


def test_both_renderers_know_every_mark() -> None:
    script = read_asset("charts.js")
    shapes = re.search(r"const SHAPES = \{\n(.*?)\n  \};", script, re.S)
    assert shapes is not None
    filled = re.findall(r"^    (\w+)[:,]", shapes[1], re.M)
    assert ("dot", *filled) == FILLED_MARKS, "and count them alike"
    drawn = set(filled) | set(re.findall(r'kind === "(\w+)"', script))
    assert drawn - {"grid"} | {"dot"} == set(get_args(Mark)) == set(MARKERS)
    assert set(FILLED_MARKS) < set(get_args(Mark))


def test_the_papers_points_are_open_diamonds() -> None:
    series = published_series("the paper's", [(25e6, 64.89)], "ink")
    assert (series.mark, series.line, series.points[0].y) == ("diamond", False, 64.89)


def test_the_axis_of_a_metric_says_its_unit_and_direction() -> None:
    assert metric_axis(tasks.ACCURACY) == ACCURACY == Axis("test accuracy (%)", "percent", span=3, ceiling=100.5)
    assert metric_axis(tasks.METRICS["r2"]) == Axis("test variance explained")
    assert metric_axis(tasks.METRICS["bits"], "validation") == Axis("validation (less is better)")
