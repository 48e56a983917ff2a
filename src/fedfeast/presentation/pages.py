"""Self-contained HTML pages: charts and look inside, the same charts as pictures beside them."""

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import chain, count
from pathlib import Path
from typing import Any

import jinja2

from fedfeast.evaluation.differences import IN_THEIR_CODE, OF_OUR_OWN, SOURCE
from fedfeast.presentation.assets import read_asset
from fedfeast.presentation.chart import AnyChart
from fedfeast.presentation.pictures import draw_charts
from fedfeast.whole_files import write_text


def write_page(template: str, content: Mapping[str, Any], path: Path) -> None:
    """Fill a template and write it whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, render_page(template, content))


def render_page(template: str, content: Mapping[str, Any]) -> str:
    """Fill a template."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(
            lambda name: resources.files("fedfeast.presentation").joinpath("templates", name).read_text()
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    look = {"style": read_asset("style.css"), "scripts": [read_asset("charts.js"), read_asset("tables.js")]}
    return environment.get_template(template).render({**look, **content})


def known_differences() -> dict[str, Any]:
    """Return what a page says of the reasons for which figures differ from the published ones."""
    return {"source": SOURCE, "reasons": IN_THEIR_CODE, "own": OF_OUR_OWN}


class Pictures:
    """Collects the charts of a page, and draws them into files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[Path] = []

    def add(
        self,
        heading: str,
        name: str,
        charts: Sequence[AnyChart],
        caption: str,
        linked: bool = False,
        published: bool = False,
    ) -> dict[str, Any]:
        """Draw charts in both formats; return what the page shows of them, with links to the files if wanted.

        Where published figures are among them, the page leads to the reasons for a difference.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        numbered = (f"{name}-{number}" for number in count(2))  # runs in different places may have one name
        name = next(one for one in chain([name], numbered) if self.folder / f"{one}.svg" not in self.files)
        files = [self.folder / f"{name}{suffix}" for suffix in (".svg", ".png")]
        for file in files:  # one that is handed on by a link says what it shows
            draw_charts(charts, file, heading if linked else "")
        self.files += files
        return {
            "heading": heading,
            "charts": [
                {"id": f"chart-{name}-{number}", "content": _inside_a_page(chart.spec())}
                for number, chart in enumerate(charts)
            ],
            "caption": caption,
            "links": [f"{self.folder.name}/{file.name}" for file in files] if linked else [],
            "published": published,
        }


def _inside_a_page(content: Mapping[str, Any]) -> str:
    """Return JSON that no text in it can end."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
