"""The commands under ``fedfeast fleet``: credentials for a fleet of one's own, and a demonstration on this machine."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedfeast.errors import InvalidInput

fleet_app = typer.Typer(
    name="fleet",
    help="Prepare and try a fleet over Flower; needs fedfeast[flower].",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@fleet_app.command()
def certificate(
    hosts: Annotated[list[str], typer.Argument(help="Names or addresses that nodes will reach the SuperLink by.")],
    out: Annotated[Path, typer.Option(help="The folder for ca.crt, server.pem and server.key.")] = Path("credentials"),
) -> None:
    """Make a certificate authority of one's own and the SuperLink's certificate."""
    _require_flower()
    from fedfeast.flower.credentials import make_server_credentials

    files = make_server_credentials(out, hosts)
    _say(f"for the SuperLink alone: {files.certificate} and {files.key}; for everybody: {files.authority}")


@fleet_app.command()
def key(
    name: Annotated[str, typer.Argument(help="The node's name.")],
    out: Annotated[Path, typer.Option(help="The folder for NAME and NAME.pub.")] = Path("keys"),
) -> None:
    """Make a node's key pair; the public half is registered at the SuperLink."""
    _require_flower()
    from fedfeast.flower.credentials import make_node_key

    private = make_node_key(out, name)
    _say(f"for the node alone: {private}; to register with flwr supernode register: {private}.pub")


@fleet_app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/fleet-demo"),
    rounds: Annotated[int, typer.Option(help="How many rounds to train.", min=1)] = 4,
    app: Annotated[Path, typer.Option(help="The Flower app, deploy/ of the repository.")] = Path("deploy"),
    port: Annotated[int | None, typer.Option(help="The SuperLink's port; a free one by default.")] = None,
) -> None:
    """Train digits over a SuperLink and three SuperNodes on this machine, with TLS and node authentication."""
    _require_flower()
    from fedfeast.app.fleet_demo import run_demo

    if not (app / "pyproject.toml").is_file():
        raise InvalidInput(f"--app {app} is no Flower app: give the repository's deploy folder.")
    run_demo(app.resolve(), rounds, out, Console(), port)


def _require_flower() -> None:
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise InvalidInput("Flower is not installed: pip install 'fedfeast[flower]'.")


def _say(text: str) -> None:
    Console().print(text, highlight=False, markup=False, soft_wrap=True)
