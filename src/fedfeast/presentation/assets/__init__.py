"""The stylesheet and the charts, as text to serve or to put into a page."""

from importlib import resources


def read_asset(name: str) -> str:
    """Return style.css or charts.js."""
    return resources.files("fedfeast.presentation.assets").joinpath(name).read_text(encoding="utf-8")
