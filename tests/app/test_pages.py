from pathlib import Path

import jinja2
import pytest
from matplotlib.figure import Figure

from fedfeast.app.pages import Pictures, write_page

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


def test_pictures_are_inline_and_files(tmp_path: Path) -> None:
    pictures = Pictures(tmp_path / "pictures")
    plain = pictures.add("Heading", "one", Figure(), "caption")
    linked = pictures.add("Heading", "two", Figure(), "caption", linked=True)
    assert plain["svg"].startswith("<svg")
    assert plain["links"] == []
    assert linked["links"] == ["pictures/two.svg", "pictures/two.png"]
    assert [file.name for file in pictures.files] == ["one.svg", "one.png", "two.svg", "two.png"]
    assert all(file.is_file() for file in pictures.files)
