import json
from pathlib import Path

import jinja2
import pytest
from matplotlib.figure import Figure

from fedfeast.presentation.assets import read_asset
from fedfeast.presentation.pages import Pictures, write_page

CONTENT = {"title": "<T>", "lead": "lead", "notes": [], "comparison": [], "shared_figures": [], "runs": []}


def test_a_page_is_filled_escaped_and_written_whole(tmp_path: Path) -> None:
    write_page("report.html.j2", CONTENT, tmp_path / "new" / "page.html")
    page = (tmp_path / "new" / "page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<h1>&lt;T&gt;</h1>" in page
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["page.html"]


def test_missing_content_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(jinja2.UndefinedError):
        write_page("report.html.j2", {}, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_look_is_inside(tmp_path: Path) -> None:
    write_page("report.html.j2", CONTENT, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert read_asset("style.css") in page
    assert read_asset("charts.js") in page


def test_figures_are_charts_and_files(tmp_path: Path) -> None:
    pictures = Pictures(tmp_path / "pictures")
    plain = pictures.add("Heading", "one", Figure(), [{"kind": "xy"}, {"kind": "grid"}], "caption")
    linked = pictures.add("Heading", "two", Figure(), [{"label": "</script>"}], "caption", linked=True)
    assert [chart["id"] for chart in plain["charts"]] == ["chart-one-0", "chart-one-1"]
    assert plain["links"] == []
    assert linked["links"] == ["pictures/two.svg", "pictures/two.png"]
    assert "<" not in linked["charts"][0]["content"]
    assert json.loads(linked["charts"][0]["content"]) == {"label": "</script>"}
    assert [file.name for file in pictures.files] == ["one.svg", "one.png", "two.svg", "two.png"]
    assert all(file.is_file() for file in pictures.files)
