"""Self-contained HTML pages: templates of this folder charts and look inside, figures as files beside them."""

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from fedfeast.presentation.assets import read_asset
from fedfeast.whole_files import write_text


def write_page(template: str, content: Mapping[str, Any], path: Path) -> None:
    """Fill a template and write it whole."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(
            lambda name: resources.files("fedfeast.presentation").joinpath("templates", name).read_text()
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    look = {"style": read_asset("style.css"), "charts": read_asset("charts.js")}
    write_text(path, environment.get_template(template).render({**look, **content}))


class Pictures:
    """Collects figures: as charts for the page, and drawn as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[Path] = []

    def add(
        self,
        heading: str,
        name: str,
        figure: Figure,
        charts: Sequence[Mapping[str, Any]],
        caption: str,
        linked: bool = False,
    ) -> dict[str, Any]:
        """Save a figure in both formats; return what the page shows of it, with links to the files if wanted."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = [self.folder / f"{name}{suffix}" for suffix in (".svg", ".png")]
        for file in files:
            figure.savefig(file, dpi=160)
        self.files += files
        return {
            "heading": heading,
            "charts": [
                {"id": f"chart-{name}-{number}", "content": _inside_a_page(chart)}
                for number, chart in enumerate(charts)
            ],
            "caption": caption,
            "links": [f"{self.folder.name}/{file.name}" for file in files] if linked else [],
        }


def _inside_a_page(content: Mapping[str, Any]) -> str:
    """Return JSON that no text in it can end."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
