"""The way in; without the [serve] extra it says what to install."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fedfeast.errors import InvalidInput

LOOPBACK = "127.0.0.1"
PORT = 8765


def serve(
    runs: Sequence[Path | str] | Path | str,
    host: str = LOOPBACK,
    port: int = PORT,
    token: str | None = None,
    on_ready: Callable[[str], None] = lambda address: None,
    browser_runtime: Path | str | None = None,
) -> None:
    """Serve one or several runs' or ladders' folders until the process is told to stop.

    Port 0 takes a free one; on_ready is told the address as soon as it is open. A folder with onnxruntime-web's files,
    or the default one that fedfeast browser-runtime fills, lets the page run models in the visitor's browser.
    """
    try:
        from fedfeast.server.serving_process import run_server
    except ImportError as error:
        raise InvalidInput(f"the server needs the {error.name} package: pip install 'fedfeast[serve]'.") from error
    folders = [runs] if isinstance(runs, Path | str) else runs
    run_server(folders, host, port, token, on_ready, browser_runtime)
