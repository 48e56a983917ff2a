"""The site's contents: the tables of docs/README.md are the sidebar, and two further lists lead to their pages."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

ROW = re.compile(r"^\| (?P<links>\[.+\)) \| (?P<tells>.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[(?P<name>[^]]+)\]\((?P<page>[^)]+)\)")
# Lists whose own tables link what belongs to them.
LISTS = {"docs/decisions/README": "[0-9]*", "benchmarks/README": "results/*"}


class Row(NamedTuple):
    """A row of the list of documents: its pages by name, and what they tell."""

    pages: dict[str, str]
    tells: str


def chapters(listing: str) -> Iterator[tuple[str, list[Row]]]:
    """Yield the headings of the list of documents, each with its rows."""
    for chapter in listing.split("\n## ")[1:]:
        title, _, text = chapter.partition("\n")
        yield title, [Row(dict(LINK.findall(row["links"])), row["tells"]) for row in ROW.finditer(text)]


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Add to a page what Sphinx must know of the order of pages; it shows in the sidebar alone."""
    if page == app.config.root_doc:
        for title, rows in list(chapters(source[0])):
            pages = [re.sub(r"\.(md|ipynb)$", "", one) for row in rows for one in row.pages.values()]
            source[0] += _toctree(f":caption: {title}", *pages)
    elif page in LISTS:
        source[0] += _toctree(":glob:", LISTS[page])


def _toctree(option: str, *pages: str) -> str:
    return "\n".join(["", "", "```{toctree}", ":hidden:", option, "", *pages, "```", ""])


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the contents as pages are read."""
    app.connect("source-read", add_contents)
    return {"parallel_read_safe": True}
