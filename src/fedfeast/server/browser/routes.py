"""The runtime over HTTP: two fixed files, and the one script that may run WebAssembly."""

import gzip
from importlib import resources

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import Response

from fedfeast.server.browser.runtime import PROGRAM, SCRIPT, SHA256, BrowserRuntime
from fedfeast.server.guard import POLICY
from fedfeast.server.model_files import FOR_EVER

MEDIA_TYPES = {SCRIPT: "text/javascript", PROGRAM: "application/wasm"}
# A worker is bound by the policy it came with and not by its page's, so that nothing else may compile anything.
WORKER_POLICY = f"{POLICY}; script-src 'self' 'wasm-unsafe-eval'"


def add_runtime(app: FastAPI, runtime: BrowserRuntime) -> None:
    """Add the worker and the files that it loads."""
    packed = {name: gzip.compress(content, 1) for name, content in runtime.files.items()}  # 14 MB become 4
    worker = resources.files("fedfeast.server.browser").joinpath("worker.js").read_text(encoding="utf-8")

    @app.api_route("/runtime/worker.js", methods=["GET", "HEAD"], include_in_schema=False)
    async def send_worker() -> Response:
        return Response(worker, media_type="text/javascript", headers={"content-security-policy": WORKER_POLICY})

    # The version is in the address, so that what was fetched once never has to be asked for again.
    @app.api_route(f"/runtime/{runtime.version}/{{name}}", methods=["GET", "HEAD"], include_in_schema=False)
    async def send_file(request: Request, name: str) -> Response:
        if name not in runtime.files:
            raise HTTPException(404)
        unpacks = "gzip" in request.headers.get("accept-encoding", "")
        etag = f'"{SHA256[name]}{"-gzip" if unpacks else ""}"'
        headers = {"etag": etag, "vary": "accept-encoding", "cache-control": f"public, {FOR_EVER}"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        if unpacks:
            headers["content-encoding"] = "gzip"
        content = (packed if unpacks else runtime.files)[name]
        return Response(content, media_type=MEDIA_TYPES[name], headers=headers)
