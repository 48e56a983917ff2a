"""The page's files over HTTP: its own, and the style and charts that reports share."""

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from fedfeast.presentation.pages import known_differences, render_page

PAGES = {"/": "index.html", "/docs": "docs.html"}
LOADED = (".css", ".js", ".svg")  # what pages load; the shared folder holds Python, too


def add_page(app: FastAPI) -> None:
    """Add the page, the description of the API, and what they load."""
    files = StaticFiles(packages=[("fedfeast.server", "page"), ("fedfeast.presentation", "assets")])
    for path, name in PAGES.items():

        async def page(request: Request, name: str = name) -> Response:
            return await files.get_response(name, request.scope)

        app.add_api_route(path, page, methods=["GET", "HEAD"], include_in_schema=False)

    text = render_page("differences.html.j2", {"differences": known_differences()})

    @app.api_route("/differences", methods=["GET", "HEAD"], include_in_schema=False)
    async def differences() -> Response:
        return HTMLResponse(text)

    # A route and not a mount, which would be counted among requests that lead nowhere.
    @app.api_route("/static/{name}", methods=["GET", "HEAD"], include_in_schema=False)
    async def loaded(request: Request, name: str) -> Response:
        if not name.endswith(LOADED):
            raise HTTPException(404)
        return await files.get_response(name, request.scope)
