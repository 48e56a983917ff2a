import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from PIL import Image

from fedfeast.planning.searching import search_recipe
from fedfeast.presentation.chart import (
    ACCURACY,
    DASHED,
    FILLED_MARKS,
    AnyChart,
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
)
from fedfeast.presentation.palette import cell_colour, colour_of
from fedfeast.presentation.pictures import (
    MARKERS,
    draw_charts,
    draw_curves,
    draw_latency,
    draw_search,
    figure_of,
    log_ticks,
    svg_of,
)
from fedfeast.presentation.run_charts import (
    clients_charts,
    coverage_charts,
    curve_charts,
    history_charts,
    latency_charts,
)
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run

PARTS = [{"stage": "stem", "block": 0, "data_share": 1.0}, {"stage": "stage1", "block": 1, "data_share": 0.25}]
PHONE = {
    "points": [{"name": f"{n}k", "median_ms": 2.0**n, "accuracy": 0.5 + n / 100} for n in range(1, 21)],
    "device": "a phone",
    "threads": 2,
}


def line(label: str, number: int = 0, mark: Mark = "dot", count: int = 4) -> Series:
    return Series(label, tuple(Point(25e6 * 2**step, 60.0 + step) for step in range(count)), number, mark)


def over_macs(*series: Series) -> Chart:
    return Chart(macs_axis(), ACCURACY, series)


def check_files(charts: Sequence[AnyChart], folder: Path, labels: Sequence[str]) -> None:
    """Draw charts, and find labels in the SVG and ink on the PNG."""
    text = svg_of(charts)
    for label in labels:
        assert f"<!-- {label} -->" in text, label
    draw_charts(charts, folder / "picture.png")
    with Image.open(folder / "picture.png") as picture:
        assert picture.width == 1152
        assert picture.height == pytest.approx(1.6 * sum(chart.height for chart in charts), abs=1)
        assert len(picture.convert("RGB").getcolors(1 << 24) or ()) > 50


def test_pictures_of_runs(make_up_run: Callable[..., Run], tmp_path: Path) -> None:
    runs = [make_up_run("one"), make_up_run("two")]
    curves = ("one, feast: population score 41.7 %", "two, feast: population score 41.7 %", "test accuracy (%)")
    check_files(curve_charts(runs), tmp_path, (*curves, "clients by budget"))
    check_files(history_charts(runs), tmp_path, ("one, feast, teacher", "mean training loss", "round", "two, feast"))
    clients = ("target share", "realized share", "share of all examples (%)")
    check_files(clients_charts(runs[0]), tmp_path, clients)
    check_files(coverage_charts(PARTS), tmp_path, ("stem", "stage1", "25", "100"))


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_suffix_picks_the_format(make_up_run: Callable[..., Run], tmp_path: Path, suffix: str) -> None:
    runs, found = [make_up_run("one")], search_recipe(load_recipe("digits"), [2e5, 1e6]).distinct
    draw_curves(runs, tmp_path / f"curves.{suffix}")
    draw_search(found, tmp_path / f"search.{suffix}")
    draw_latency(PHONE, tmp_path / f"latency.{suffix}")
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    for name in ("curves", "search", "latency"):
        assert (tmp_path / f"{name}.{suffix}").read_bytes().startswith(begins)
    if suffix == "svg":
        assert all(f"<!-- {word} -->" in (tmp_path / "search.svg").read_text() for word in ("fitness", "stage 3"))
        text = (tmp_path / "latency.svg").read_text()
        assert "<!-- 1k -->" in text
        assert "<!-- 2k -->" not in text


@pytest.mark.parametrize("ratio", [1.002, 1.02, 1.3])
def test_names_of_networks_cover_neither_each_other_nor_the_edge(ratio: float) -> None:
    places = [(0.05 * ratio**n, 0.975 + 0.001 * n) for n in range(1, 9)]
    rows = [{"name": f"{n}00.5k", "median_ms": ms, "accuracy": share} for n, (ms, share) in enumerate(places, start=1)]
    figure = figure_of(latency_charts({**PHONE, "points": rows}))
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [one.get_window_extent() for one in axes.texts]
    assert len(boxes) >= 6
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(figure.bbox.contains(box.x0, box.y0) and figure.bbox.contains(box.x1, box.y1) for box in boxes)
    marks = axes.transData.transform([(ms, 100 * share) for ms, share in places])
    assert not any(box.contains(*mark) for box in boxes for mark in marks)


def test_intervals_are_drawn_and_within_the_axis() -> None:
    points = (Point(1e6, 98.0, interval=(95.0, 99.2)), Point(2e6, 99.0))
    chart = Chart(macs_axis(), ACCURACY, (Series("one", points),))
    (axes,) = figure_of([chart]).axes
    (bar,) = axes.collections
    assert isinstance(bar, LineCollection)
    assert np.asarray(bar.get_segments()[0]).tolist() == [[1e6, 95.0], [1e6, 99.2]]
    assert chart.y_limits[0] < 95.0
    assert chart.spec()["series"][0]["points"] == [[1e6, 98.0, 0.0, "", [95.0, 99.2]], [2e6, 99.0]]


def test_a_picture_shows_what_the_page_shows() -> None:
    several = [line(f"series {number}", number, mark_of(number)) for number in range(len(FILLED_MARKS))]
    chart = over_macs(*several)
    (axes,) = figure_of([chart]).axes
    drawn = {str(one.get_label()): one for one in axes.get_lines()}
    spec = chart.spec()
    assert (axes.get_xlim(), axes.get_ylim()) == (chart.x_limits, chart.y_limits)
    for series in spec["series"]:
        shown = drawn[series["label"]]
        assert to_hex(shown.get_color()) == colour_of(series["colour"])
        assert shown.get_marker() == MARKERS[series.get("mark", "dot")][0]
        pairs = zip(np.asarray(shown.get_xdata()), np.asarray(shown.get_ydata()), strict=True)
        assert [list(pair) for pair in pairs] == series["points"]
    looks = {(one.get_color(), one.get_marker()) for one in axes.get_lines()}
    assert len(looks) == len(several)


def test_every_mark_has_a_marker_of_its_own() -> None:
    markers = [marker for mark, (marker, _) in MARKERS.items() if mark != "ring"]
    assert len(set(markers)) == len(markers)


def test_dashes_open_marks_and_points_without_a_line() -> None:
    dashed = Series("dashed", line("").points, 1, dash=DASHED)
    published = Series("published", line("").points, "ink", "diamond", line=False)
    (axes,) = figure_of([over_macs(dashed, published)]).axes
    first, second = axes.get_lines()
    assert first.get_linestyle() == "--"
    assert second.get_linestyle() == "None"
    assert to_hex(second.get_markerfacecolor()) == colour_of("card")
    assert to_hex(second.get_markeredgecolor()) == colour_of("ink")


def test_bars_are_those_of_the_description() -> None:
    bars = (Bar(100, 200, 3, muted=True), Bar(200, 400, 5))
    (axes,) = figure_of([Chart(macs_axis(), Axis("clients", floor=0), bars=bars)]).axes
    shown = [(patch.get_x(), patch.get_width(), patch.get_height()) for patch in axes.patches]  # type: ignore[attr-defined]
    assert shown == [(100, 100, 3), (200, 200, 5)]
    assert [to_hex(patch.get_facecolor()) for patch in axes.patches] == [colour_of("grey"), colour_of(0)]


def test_the_range_that_is_not_compared_is_shaded() -> None:
    plain, shaded = over_macs(line("one")), Chart(macs_axis(), ACCURACY, (line("one"),), shade_to=30e6)
    assert len(figure_of([plain]).axes[0].patches) == 0
    assert len(figure_of([shaded]).axes[0].patches) == 1


def test_several_seeds_have_a_band() -> None:
    spread = Series("one", tuple(Point(point.x, point.y, 0.5) for point in line("one").points))
    assert len(figure_of([over_macs(spread)]).axes[0].collections) == 1
    assert len(figure_of([over_macs(line("one"))]).axes[0].collections) == 0


def test_charts_over_one_axis_have_its_numbers_once() -> None:
    axis = macs_axis(least=1e6, greatest=1e9)
    upper, lower = Chart(axis, ACCURACY, (line("one"),)), Chart(axis, Axis("level"), (line("two"),))
    above, below = figure_of([upper, lower]).axes
    assert (above.get_xlabel(), below.get_xlabel()) == ("", axis.label)
    apart, _ = figure_of([over_macs(line("one")), lower]).axes
    assert apart.get_xlabel() == axis.label


def test_a_heat_map_has_the_pages_colours() -> None:
    (axes,) = figure_of([HeatMap("block", ("stem", "head"), ("0", "1"), ((100.0, None), (40.0, 0.0)))]).axes
    expected = [cell_colour(share) for share in (100, 40, 0)]
    assert [to_hex(patch.get_facecolor()) for patch in axes.patches] == expected
    assert [text.get_text() for text in axes.texts] == ["100", "40", "0"]


def test_a_crowded_line_shows_some_of_its_marks() -> None:
    crowded = Series("many", tuple(Point(step, 0.5) for step in range(1, 401)))
    sparse = Series("few", (Point(1, 0.5), Point(2, 0.5), Point(400, 0.5)))
    chart = Chart(Axis("round"), Axis("loss"), (crowded, sparse))
    many, few = figure_of([chart]).axes[0].get_lines()
    marked = many.get_markevery()
    assert isinstance(marked, list)
    assert 20 < len(marked) < 50
    assert few.get_markevery() is None


def test_numbers_of_a_logarithmic_axis_stand_apart() -> None:
    assert log_ticks(1e4, 1e7) == pytest.approx([n * 10**p for p in (4, 5, 6) for n in (1, 2, 5)] + [1e7])
    for right in (1.5, 3, 20, 1e3, 1e6, 1e12):
        ticks = log_ticks(1.0, right)
        assert len(ticks) >= 2
        assert min(math.log(after / before) for before, after in pairwise(ticks)) > 0.06 * math.log(right)


def test_the_same_chart_has_the_same_bytes_and_leaves_no_settings_behind(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    charts = [Chart(macs_axis(), ACCURACY, (line("one"),), notes=(Note(25e6, 60.0, "$here$"),))]
    assert svg_of(charts) == svg_of(charts)
    for name in ("one.svg", "two.svg"):
        draw_charts(charts, tmp_path / name, title="$title$")
    assert (tmp_path / "one.svg").read_text() == (tmp_path / "two.svg").read_text()
    assert "<!-- $title$ -->" in (tmp_path / "one.svg").read_text()
    assert "<!-- $here$ -->" in (tmp_path / "one.svg").read_text()
    assert dict(matplotlib.rcParams) == before
