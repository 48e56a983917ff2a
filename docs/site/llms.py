"""llms.txt: the site's pages for language models, as a list and as one text, made from the list of documents."""

import re
from pathlib import Path

from contents import chapters
from generated import filled_in
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

HEAD = """# fedfeast

> Trains one elastic network over a fleet of unequal devices, then hands every device the largest model it can afford:
> FEAST and the methods it is compared with, simulated on one machine or over a real fleet. Python and PyTorch.

All pages in one text: [llms-full.txt](llms-full.txt)
"""


def write_for_models(app: Sphinx, failure: Exception | None) -> None:
    """Write both files at the site's root."""
    if failure is not None or app.builder.name != "html":
        return
    docs, lines, texts = Path(app.srcdir) / "docs", [HEAD], list[str]()
    for title, rows in chapters((docs / "README.md").read_text()):
        lines.append(f"## {title}\n")
        for row in rows:
            for name, page in row.pages.items():
                place = (docs / page).resolve().relative_to(app.srcdir)
                lines.append(f"- [{name}]({place.with_suffix('.html')}): {without_links(row.tells)}")
                if place.suffix == ".md":
                    texts.append(f"<!-- {place} -->\n\n{filled_in((docs / page).read_text())}")
        lines.append("")
    (app.outdir / "llms.txt").write_text("\n".join(lines))
    (app.outdir / "llms-full.txt").write_text("\n\n".join(texts))


def without_links(text: str) -> str:
    """Return a sentence whose links are words alone: they would lead elsewhere from another place."""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Write them when everything else is built."""
    app.connect("build-finished", write_for_models)
    return {"parallel_read_safe": True}
