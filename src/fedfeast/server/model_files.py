"""Files of models over HTTP: streamed in parts, resumable, and never sent again to who has them."""

from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response

from fedfeast.server.offer import ModelFile

# A variant's id stands for its very bytes, so that what was fetched once never has to be asked for again.
FOR_EVER = "max-age=31536000, immutable"


class _ModelResponse(FileResponse):
    chunk_size = 128 * 1024  # each is read by a thread, and a slow client holds two of them


def send_model(file: ModelFile, request: Headers, shared: bool) -> Response:
    """Return the answer to a request for a file; caches between us and the client may keep it if ``shared``."""
    etag = f'"{file.sha256}"'
    headers = {"etag": etag, "cache-control": f"{'public' if shared else 'private'}, {FOR_EVER}"}
    if _has(request.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    headers["x-sha256"] = file.sha256
    return _ModelResponse(
        file.path,
        headers=headers,
        media_type="application/octet-stream",
        filename=file.download_name,
        stat_result=file.stat,
    )


def _has(known: str, etag: str) -> bool:
    names = [name.strip().removeprefix("W/") for name in known.split(",")]
    return etag in names or "*" in names
