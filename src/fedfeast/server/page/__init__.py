"""The files of the page, as a browser gets them."""

from importlib import resources


def read_page_file(name: str) -> str:
    """Return a file of the page."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
