"""Pages whose text is made from the code while the site is built, in place of a line that names it."""

import re

from command_line import command_line
from http_api import http_api
from recipe_fields import recipe_fields
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

MADE = {"recipe fields": recipe_fields, "commands": command_line, "HTTP API": http_api}
PLACE = re.compile(r"^<!-- make docs writes here: (.+) -->$", re.MULTILINE)


def filled_in(text: str) -> str:
    """Return a page with what is made in its place."""
    return PLACE.sub(lambda place: MADE[place[1]](), text)


def fill_in(app: Sphinx, page: str, source: list[str]) -> None:
    """Fill a page in as it is read; the repository's file stays as it is."""
    source[0] = filled_in(source[0])


def setup(app: Sphinx) -> ExtensionMetadata:
    """Fill pages in as they are read."""
    app.connect("source-read", fill_in)
    return {"parallel_read_safe": True}
