import json
from pathlib import Path

import jinja2
import pytest

from fedfeast.presentation.assets import read_asset
from fedfeast.presentation.chart import ACCURACY, Chart, HeatMap, macs_axis, published_series
from fedfeast.presentation.pages import Pictures, write_page

EMPTY: dict[str, object] = {"notes": [], "comparison": [], "shared_figures": [], "runs": [], "differences": None}
CONTENT = {"title": "<T>", "lead": "lead", **EMPTY}


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


def test_charts_are_inside_the_page_and_files_beside_it(tmp_path: Path) -> None:
    pictures = Pictures(tmp_path / "pictures")
    heat_map = HeatMap("block", ("stem",), ("0",), ((50.0,),))
    chart = Chart(macs_axis(), ACCURACY, (published_series("</script>", [(1e6, 50.0)], "ink"),))
    plain = pictures.add("Heading", "one", [chart, heat_map], "caption")
    linked = pictures.add("Heading", "two", [chart], "caption", linked=True)
    assert [one["id"] for one in plain["charts"]] == ["chart-one-0", "chart-one-1"]
    assert plain["links"] == []
    assert linked["links"] == ["pictures/two.svg", "pictures/two.png"]
    assert "<" not in linked["charts"][0]["content"]
    assert json.loads(linked["charts"][0]["content"]) == chart.spec()
    assert [file.name for file in pictures.files] == ["one.svg", "one.png", "two.svg", "two.png"]
    assert all(file.is_file() for file in pictures.files)
    titled = ["<!-- Heading -->" in (tmp_path / "pictures" / f"{name}.svg").read_text() for name in ("one", "two")]
    assert titled == [False, True], "a file that is handed on says what it shows"
    again = pictures.add("Heading", "one", [chart], "another run of that name")
    assert again["charts"][0]["id"] == "chart-one-2-0"
    assert [file.name for file in pictures.files[-2:]] == ["one-2.svg", "one-2.png"]
