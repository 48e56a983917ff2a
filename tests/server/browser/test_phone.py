"""Pages at a phone's width: nothing is cut off without a cue, and the result is seen without scrolling."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

import fedfeast
from fedfeast.machine import processor_and_cores
from fedfeast.presentation.pages import write_page

Serve = Callable[..., str]
PHONES = [360, 390]
# Words of charts that stick out of the picture, sideways or above and below it.
CLIPPED = """() => [...document.querySelectorAll(".chart > svg")].flatMap((svg) => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((text) => text.textContent).filter((text) => {
    const at = text.getBoundingClientRect();
    return at.left < box.left - 1 || at.right > box.right + 1 || at.top < box.top - 1 || at.bottom > box.bottom + 1;
  }).map((text) => text.textContent);
})"""
# Boxes of which a part is hidden at the right, without a fade that says so.
CUT = """() => [...document.querySelectorAll("main *")].filter((node) => {
  const style = getComputedStyle(node);
  const hidden = node.clientWidth && node.scrollWidth > node.clientWidth + 1 && style.overflowX !== "visible";
  return hidden && style.maskImage === "none";
}).map((node) => `${node.tagName}.${node.className}`)"""


@pytest.fixture
def two_runs(trained: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the finished run, the first with latencies of this machine."""
    for name in ("first", "second"):
        copytree(trained, tmp_path / name, ignore=ignore_patterns("served"))
    write_latencies(tmp_path / "first")
    return tmp_path / "first", tmp_path / "second"


def write_latencies(folder: Path) -> None:
    rows = fedfeast.Run.open(folder).summary["curve"]
    points = [{**row, "median_ms": 0.03 * 1.2**place, "fastest_ms": 0.02} for place, row in enumerate(rows)]
    content = {"device": processor_and_cores(), "threads": 2, "points": points}
    (folder / "latency.json").write_text(json.dumps(content))


def scrolls_sideways(page: Page) -> bool:
    wide: bool = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return wide


@pytest.mark.parametrize("width", PHONES)
def test_the_page_on_a_phone(visitor: Any, serve: Serve, two_runs: tuple[Path, Path], width: int) -> None:
    page = visitor.open(serve(*two_runs), width=width)
    expect(page.locator("#chosen")).to_contain_text("This device gets the")
    for unit in ("MACs", "Parameters", "Latency"):
        page.get_by_role("button", name=unit, exact=True).click()
        expect(page.locator("#curve > svg")).to_contain_text("log scale")
        assert page.evaluate(CLIPPED) == []
    # A browser of 360 x 800 pixels shows the choice, its slider and what it buys at once.
    assert page.evaluate("document.querySelector('#chosen .big').getBoundingClientRect().bottom + scrollY") <= 800
    assert page.evaluate(CUT) == []
    assert not scrolls_sideways(page)


def test_a_table_that_goes_on_says_so_until_its_end(visitor: Any, address: str) -> None:
    page = visitor.open(address, width=360)
    expect(page.locator("#variants tbody tr")).to_have_count(8)
    box = page.locator(".scroll:has(#variants)")
    expect(box).to_have_class(re.compile("more-right"))
    expect(box).to_have_attribute("tabindex", "0")
    box.focus()
    box.press("End")
    box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    expect(box).not_to_have_class(re.compile("more-right"))
    expect(box).to_have_class(re.compile("more-left"))
    name, shown = box.locator("tbody td").first.bounding_box(), box.bounding_box()
    assert name is not None and shown is not None  # noqa: PT018
    assert name["x"] == pytest.approx(shown["x"], abs=2)  # the model's name stays in sight
    page.set_viewport_size({"width": 1280, "height": 900})
    expect(box).not_to_have_class(re.compile("more"))
    expect(box).not_to_have_attribute("tabindex", "0")


@pytest.mark.parametrize("width", PHONES)
def test_a_report_on_a_phone(visitor: Any, two_runs: tuple[Path, Path], tmp_path: Path, width: int) -> None:
    runs = [fedfeast.Run.open(folder) for folder in two_runs]
    page = visitor.open(fedfeast.report(runs, tmp_path / "report.html")[0].as_uri(), width=width)
    expect(page.locator(".chart > svg").first).to_contain_text("inference cost")
    expect(page.locator("svg[aria-label*='latency of one example (ms)']")).to_have_count(1)
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate(CUT) == []
    assert not scrolls_sideways(page)


@pytest.mark.parametrize("width", [1100, 360])
def test_a_studys_folders_are_read_whole(visitor: Any, tmp_path: Path, width: int) -> None:
    header = ["run", "seed", "rounds", "population score", "by the best affordable", "best round", "training time"]
    folder = "digits-superfednas-rounds-6-seed-0-2d89c3306f1a9e44"
    line = ["SuperFedNAS", 0, 6, "30.20 %", "35.63 %", "6", "5 s", "eager, float32, cpu", folder]
    content = {
        **{"title": "A study", "lead": "", "notes": [], "protocol": {}, "tables": [], "figures": []},
        **{"runs": {"header": [*header, "engine", "folder"], "lines": [line]}, "differences": None, "recipe": ""},
    }
    write_page("study.html.j2", content, tmp_path / "study.html")
    page = visitor.open((tmp_path / "study.html").as_uri(), width=width)
    box = page.locator(".scroll")
    if width > 1000:
        assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
    else:
        expect(box).to_have_class(re.compile("more-right"))
        box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    cell, shown = box.locator("td").last.bounding_box(), box.bounding_box()
    assert cell is not None and shown is not None  # noqa: PT018
    assert cell["x"] + cell["width"] <= shown["x"] + shown["width"] + 1
    assert not scrolls_sideways(page)


def test_a_file_that_is_no_image_is_refused_in_one_sentence(visitor: Any, address: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing")
    Image.new("L", (8, 8), 200).save(tmp_path / "small.png")
    page = visitor.open(address, width=390)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/predict/" in request.url else None)
    expect(page.locator("#drop")).to_be_visible()
    for name in ("notes.txt", "broken.png"):
        page.locator("#file").set_input_files(tmp_path / name)
        expect(page.locator("#drop-problem")).to_have_text(
            f"{name} is no image that can be read: give a PNG, JPEG, WebP, BMP or GIF file."
        )
        expect(page.locator("#dropped")).to_be_hidden()
        expect(page.locator("#fit")).to_be_hidden()
    assert asked == []
    page.locator("#file").set_input_files(tmp_path / "small.png")
    expect(page.locator("#answers tbody tr").nth(7).locator("td").nth(3)).to_contain_text("ms")
    expect(page.locator("#dropped")).to_be_visible()
    expect(page.locator("#drop-problem")).to_be_hidden()
    page.locator("#file").set_input_files(tmp_path / "notes.txt")
    expect(page.locator("#drop-problem")).to_contain_text("notes.txt is no image")
    expect(page.locator("#answers tbody tr").nth(7).locator("td").nth(3)).to_have_text("–")  # noqa: RUF001 - a dash


def test_the_latency_of_a_second_run_is_shown_as_soon_as_it_is_measured(
    visitor: Any, serve: Serve, two_runs: tuple[Path, Path]
) -> None:
    page = visitor.open(serve(*two_runs))
    page.get_by_role("button", name="Latency", exact=True).click()
    expect(page.locator("#curve > svg .dot")).to_have_count(8)
    note = "The latency of second is not measured on this machine: fedfeast latency second."
    expect(page.locator("#curve-note")).to_contain_text(note)
    write_latencies(two_runs[1])
    expect(page.locator("#curve > svg .dot")).to_have_count(16)
    expect(page.locator("#curve .legend")).to_have_text("firstsecond")
    expect(page.locator("#curve-note")).not_to_contain_text(note)


def test_accuracies_on_a_small_test_set_have_bars(visitor: Any, address: str) -> None:
    page = visitor.open(address)
    expect(page.locator("#curve .interval")).to_have_count(8)
    expect(page.locator("#curve-note")).to_have_text("Bars: at 95 % certainty; the test set is small.")
    expect(page.locator("#chosen")).to_contain_text(re.compile(r"At 95 % certainty\d+\.\d to \d+\.\d %"))
    assert page.evaluate(CLIPPED) == []
