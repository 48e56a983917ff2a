"""Reports in a browser: the same charts as the page's, from one file that asks nobody for anything."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex
from playwright.sync_api import Page, expect

import fedfeast
from fedfeast.presentation.assets import read_asset
from fedfeast.presentation.chart import (
    ACCURACY,
    AnyChart,
    Axis,
    Bar,
    Chart,
    HeatMap,
    Note,
    Point,
    Series,
    macs_axis,
    mark_of,
)
from fedfeast.presentation.palette import colour_of
from fedfeast.presentation.pictures import figure_of


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (360, "dark")])
def test_a_runs_report_draws_its_charts(visitor: Any, trained: Path, tmp_path: Path, width: int, scheme: str) -> None:
    page_file = fedfeast.report([fedfeast.Run.open(trained)], tmp_path / "report.html")[0]
    page = visitor.open(page_file.as_uri(), width=width, scheme=scheme)
    expect(page.locator(".chart > svg")).to_have_count(9)
    expect(page.locator(".chart > svg").first).to_contain_text("inference cost (MACs per example, log scale)")
    expect(page.locator(".chart > svg").first.locator("circle.dot")).to_have_count(8)
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 23, 29)") == (scheme == "dark")
    text = page_file.read_text()
    assert len(text) < 200_000


def open_charts(visitor: Any, folder: Path, *charts: AnyChart) -> Page:
    """Open a page of nothing but charts, as reports have them."""
    boxes = "".join(
        f'<div class="chart" data-chart="c{number}"></div>'
        f'<script type="application/json" id="c{number}">{json.dumps(chart.spec())}</script>'
        for number, chart in enumerate(charts)
    )
    look = f"<style>{read_asset('style.css')}</style>{boxes}<script>{read_asset('charts.js')}</script>"
    (folder / "charts.html").write_text(f"<!doctype html><meta charset='utf-8'>{look}")
    page: Page = visitor.open((folder / "charts.html").as_uri(), width=800)
    return page


def colours(page: Page, selector: str, part: str) -> list[str]:
    """Return what the browser made of a fill or a stroke, in hexadecimal digits."""
    asked = f"nodes => nodes.map(node => getComputedStyle(node).{part})"
    written = page.locator(selector).evaluate_all(asked)
    found = []
    for text in written:
        numbers = [float(number) for number in re.findall(r"[\d.]+(?:e-\d+)?", text)[:3]]
        red, green, blue = numbers if text.startswith("color(srgb") else [number / 255 for number in numbers]
        found.append(to_hex((red, green, blue)))
    return found


def test_the_page_and_the_picture_have_the_same_colours_and_marks(visitor: Any, tmp_path: Path) -> None:
    places = (Point(1e6, 50.0), Point(5e6, 60.0))
    numbered = [Series(f"{number}", places, number, mark_of(number)) for number in range(17)]
    graded = [Series(f"graded {grade}", places, f"grade:{grade}") for grade in (0.0, 0.3, 0.5, 0.9, 1.0)]
    chart = Chart(macs_axis(), ACCURACY, (*numbered, *graded), notes=(Note(1e6, 50.0, "here"),))
    page = open_charts(visitor, tmp_path, chart)
    picture = [line for line in figure_of([chart]).axes[0].get_lines() if not str(line.get_label()).startswith("_")]
    assert colours(page, ".legend .line", "stroke") == [to_hex(line.get_color()) for line in picture]
    shapes = page.locator(".legend .dot").evaluate_all("nodes => nodes.map(node => node.getAttribute('d'))")
    assert len(shapes) == 22
    assert len(set(shapes[:17])) == 17
    assert [shape == shapes[0] for shape in shapes] == [line.get_marker() == "o" for line in picture]
    expect(page.locator(".mark-label")).to_have_text("here")


def test_the_page_and_the_picture_have_the_same_bars_and_cells(visitor: Any, tmp_path: Path) -> None:
    bars = (Bar(1e6, 2e6, 3, muted=True), Bar(2e6, 4e6, 5))
    ring = Series("this network", (Point(2e6, 4.0),), "warm", "ring", line=False)
    chart = Chart(macs_axis(), Axis("clients", "count", floor=0, whole=True), (ring,), bars)
    heat_map = HeatMap("block", ("stem", "head"), ("0", "1"), ((96.0, None), (40.0, 3.0)))
    page = open_charts(visitor, tmp_path, chart, heat_map)
    histogram, cells = figure_of([chart, heat_map]).axes
    assert colours(page, "[data-chart=c0] > svg rect", "fill") == [
        to_hex(patch.get_facecolor()) for patch in histogram.patches
    ]
    assert colours(page, "[data-chart=c0] > svg circle.open", "stroke") == [colour_of("warm")]
    assert colours(page, "[data-chart=c1] > svg rect", "fill") == [
        to_hex(patch.get_facecolor()) for patch in cells.patches
    ]
    assert page.locator("[data-chart=c1] .cell-text").all_text_contents() == [text.get_text() for text in cells.texts]
