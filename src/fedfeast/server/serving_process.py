"""The server as a process: a socket, uvicorn, and an end that is not abrupt."""

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from fedfeast.errors import InvalidInput
from fedfeast.machine import is_loopback
from fedfeast.server.api import build_app
from fedfeast.server.browser.runtime import find_runtime
from fedfeast.server.collection import Collection
from fedfeast.server.slow_clients import ImpatientProtocol

MOST_CONNECTIONS = 2048
GRACE_SECONDS = 5


def run_server(
    folders: Sequence[Path | str],
    host: str,
    port: int,
    token: str | None,
    on_ready: Callable[[str], None],
    browser_runtime: Path | str | None = None,
) -> None:
    """Serve runs until the process is told to stop."""
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token and token):
        raise InvalidInput("--token must be printable ASCII without spaces at its ends: give another one.")
    runtime = find_runtime(browser_runtime)
    with bind(host, port) as listening:
        # With a token a page from elsewhere reads nothing; a server for others is reached by names we do not know.
        hosts = _own_names(host) if token is None and is_loopback(host) else None
        app = build_app(Collection(folders), token, hosts, runtime)
        on_ready(address_of(listening))
        with suppress(KeyboardInterrupt):  # uvicorn has ended in order by then, and passes the signal on
            server_of(app).run(sockets=[listening])


def _own_names(host: str) -> frozenset[str]:
    """Return the names that a browser on this machine calls the server by."""
    return frozenset({"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host.lower()})


def server_of(app: FastAPI) -> uvicorn.Server:
    """Return uvicorn with limits for slow and for too many clients."""
    config = uvicorn.Config(
        app,
        http=ImpatientProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        proxy_headers=False,
    )
    return uvicorn.Server(config)


def bind(host: str, port: int) -> socket.socket:
    """Take the address, or say why that does not work."""
    if not 0 <= port <= 65535:
        raise InvalidInput(f"--port {port}: give a number from 0 (any free one) to 65535.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        raise InvalidInput(f"--host {host} is no address of this machine ({error.strerror}): give another.") from error
    try:
        listening.bind(address)
        listening.listen(MOST_CONNECTIONS)
    except OSError as error:
        listening.close()
        raise InvalidInput(f"{host} port {port} cannot be taken ({error.strerror}): give another --port.") from error
    return listening


def address_of(listening: socket.socket) -> str:
    """Return where a browser finds the page."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
