"""fedfeast serve for a person at a terminal."""

import ipaddress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

FoldersArgument = Annotated[
    list[Path], typer.Argument(help="One or several runs' folders; they may still be training.")
]


def serve(
    folders: FoldersArgument,
    host: Annotated[str, typer.Option(help="The address to listen on; others than this machine need 0.0.0.0.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8765,
    token: Annotated[
        str | None,
        typer.Option(envvar="FEDFEAST_TOKEN", help="Models and API want it as a bearer token.", show_envvar=True),
    ] = None,
) -> None:
    """Serve runs: a page with their curves, models for each budget, an HTTP API."""
    from fedfeast.server.entry import serve as serve_runs

    console = Console(stderr=True)
    if token is None and not is_loopback(host):
        warning = f"[yellow]warning:[/] everyone who reaches {host} can fetch the models: --token keeps others out."
        console.print(warning, highlight=False, soft_wrap=True)

    def tell(address: str) -> None:
        print(f"serving  {address}", flush=True)
        console.print("Ctrl-C ends it.", highlight=False)

    serve_runs(folders, host, port, token, tell)


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
