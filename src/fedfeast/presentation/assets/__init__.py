"""The stylesheet, the charts and what wide tables do, as text to serve or to put into a page."""

from importlib import resources


def read_asset(name: str) -> str:
    """Return style.css, charts.js or tables.js."""
    return resources.files("fedfeast.presentation.assets").joinpath(name).read_text(encoding="utf-8")
