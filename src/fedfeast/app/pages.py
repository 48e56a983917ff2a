"""Self-contained HTML pages: templates of this folder, figures inline and as files beside the page."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from fedfeast.app.pictures import as_svg
from fedfeast.runs.files import write_text


def write_page(template: str, content: Mapping[str, Any], path: Path) -> None:
    """Fill a template and write it whole."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: resources.files("fedfeast.app").joinpath(name).read_text()),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, environment.get_template(template).render(content))


class Pictures:
    """Collects figures: inline for the page, and as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[Path] = []

    def add(self, heading: str, name: str, figure: Figure, caption: str, linked: bool = False) -> dict[str, Any]:
        """Save a figure in both formats; return what the page shows of it, with links to the files if wanted."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = [self.folder / f"{name}{suffix}" for suffix in (".svg", ".png")]
        for file in files:
            figure.savefig(file, dpi=160)
        self.files += files
        links = [f"{self.folder.name}/{file.name}" for file in files] if linked else []
        return {"heading": heading, "svg": as_svg(figure), "caption": caption, "links": links}
