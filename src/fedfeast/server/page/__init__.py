"""The page: its files, all of them known when the server starts."""

import hashlib
from dataclasses import dataclass
from importlib import resources

from fastapi import FastAPI, Request
from fastapi.responses import Response

from fedfeast.presentation.assets import read_asset

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGES = {"/": "index.html", "/docs": "docs.html"}
OURS = ("page.css", "page.js", "docs.js", "drawing.js", "icon.svg")
SHARED = ("style.css", "charts.js")


@dataclass(frozen=True)
class _PageFile:
    content: bytes
    media_type: str

    def answer(self, request: Request) -> Response:
        """Send it, unless the browser has it."""
        etag = f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'
        headers = {"etag": etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def add_page(app: FastAPI) -> None:
    """Add the page, the description of the API, and what they load."""
    files = {path: _load(name, _read(name)) for path, name in PAGES.items()}
    files |= {f"/static/{name}": _load(name, _read(name)) for name in OURS}
    files |= {f"/static/{name}": _load(name, read_asset(name)) for name in SHARED}
    for path, file in files.items():

        async def answer(request: Request, file: _PageFile = file) -> Response:
            return file.answer(request)

        app.add_api_route(path, answer, methods=["GET", "HEAD"], include_in_schema=False)


def _load(name: str, content: str) -> _PageFile:
    return _PageFile(content.encode(), TYPES[name.rpartition(".")[2]])


def _read(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
