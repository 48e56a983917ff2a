"""llms.txt: the site's pages for language models, as a list and as one text, made from the list of documents."""

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

ROW = re.compile(r"^\| \[(?P<name>[^]]+)\]\((?P<page>[^)]+)\)[^|]*\| (?P<tells>.+) \|$", re.MULTILINE)
HEAD = (
    "# fedfeast\n\n"
    "> Trains one elastic network over a fleet of unequal devices, then hands every device the largest model it can "
    "afford: FEAST and the methods it is compared with, from a laptop to a fleet over Flower. Python, PyTorch.\n\n"
    "All pages in one text: [llms-full.txt](llms-full.txt)\n"
)


def write_for_models(app: Sphinx, failure: Exception | None) -> None:
    """Write both files beside the site's first page."""
    if failure is not None or app.builder.name != "html":
        return
    docs = Path(app.srcdir) / "docs"
    listing = re.sub(r"\|[- |]+\|\n|\| page .*\n", "", (docs / "README.md").read_text().partition("\n\n")[2])
    linked = ROW.sub(lambda row: f"- [{row['name']}]({_address(row['page'])}): {row['tells']}", listing)
    inner = re.compile(r"\]\((?!docs/|https?:)([^)]+\.md)\)")
    (app.outdir / "llms.txt").write_text(f"{HEAD}\n{linked}")
    pages = [docs / row["page"] for row in ROW.finditer(listing) if row["page"].endswith(".md")]
    texts = [f"<!-- {page.resolve().relative_to(app.srcdir)} -->\n\n{page.read_text()}" for page in pages]
    (app.outdir / "llms-full.txt").write_text("\n\n".join(texts))


def _address(page: str) -> str:
    """Return where the site has a page of docs/."""
    path = page.removeprefix("../") if page.startswith("../") else f"docs/{page}"
    return re.sub(r"\.(md|ipynb)$", ".html", path)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Write them when everything else is built."""
    app.connect("build-finished", write_for_models)
    return {"parallel_read_safe": True}
