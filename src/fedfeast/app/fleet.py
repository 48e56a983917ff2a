"""The commands under ``fedfeast fleet``: credentials and the gateway of a fleet of one's own, and a demonstration."""

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from fedfeast.app.help import Commands
from fedfeast.app.output import show
from fedfeast.errors import InvalidInput

if TYPE_CHECKING:
    from fedfeast.flower.local_fleet import LocalFleet

fleet_app = typer.Typer(
    name="fleet",
    help="Prepare and try a fleet over Flower; needs fedfeast[flower].",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=Commands,
)

BUDGETS_MACS = {"small": 2e5, "middle": 1.5e6, "top": 12e6}
# One thread a node: three of them share this machine.
SETTINGS = (
    "population.num_clients=3; partition.alpha_eff=10; population.gamma=0; training.rounds={rounds}; "
    "training.batch_size=32; evaluation.every_rounds=1; fleet.least_clients=3; fleet.deadline_seconds=120"
)
PATIENCE_SECONDS = 600.0


@fleet_app.command()
def certificate(
    hosts: Annotated[
        list[str] | None, typer.Argument(help="Names or addresses that nodes will reach the server by.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for ca.crt, ca.key, server.pem and server.key.")] = (
        Path("credentials")
    ),
    renew: Annotated[
        bool, typer.Option("--renew", help="A new certificate by the same authority: nodes stay as they are.")
    ] = False,
) -> None:
    """Make a certificate authority of one's own and the server's certificate, or renew the latter."""
    _require_flower()
    from fedfeast.flower.credentials import make_server_credentials, renew_server_certificate

    files = renew_server_certificate(out, hosts or ()) if renew else make_server_credentials(out, hosts or ())
    show(
        Console(),
        f"for the server alone: {files.certificate} and {files.key}; for everybody: {files.authority}",
        f"to renew with, best kept elsewhere: {files.authority_key}",
    )


@fleet_app.command()
def key(
    name: Annotated[str, typer.Argument(help="The node's name.")],
    out: Annotated[Path, typer.Option(help="The folder for NAME and NAME.pub.")] = Path("keys"),
) -> None:
    """Make a node's key pair; the public half is registered at the SuperLink."""
    _require_flower()
    from fedfeast.flower.credentials import make_node_key

    private = make_node_key(out, name)
    show(Console(), f"for the node alone: {private}; to register with flwr supernode register: {private}.pub")


@fleet_app.command()
def gateway(
    certificates: Annotated[Path, typer.Option(help="The folder of ca.crt, server.pem and server.key.")] = Path(
        "credentials"
    ),
    superlink: Annotated[str, typer.Option(help="Where the SuperLink listens on this machine.")] = "127.0.0.1:9091",
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is all of them.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="The port that nodes connect to.", min=1, max=65535)] = 8443,
) -> None:
    """Let nodes reach the SuperLink beside it: the Fleet API with TLS, and nothing else of Flower."""
    _require_flower()
    from fedfeast.flower.gateway import SuperLinkAddress, run_gateway

    console = Console(stderr=True)
    run_gateway(certificates, SuperLinkAddress.parse(superlink), (host, port), lambda text: show(console, text))


@fleet_app.command()
def app(
    out: Annotated[Path, typer.Option(help="The new folder for the app's three files.")] = Path("fedfeast-fleet"),
) -> None:
    """Write the Flower app that a fleet runs, for flwr run."""
    from fedfeast.flower.app import write_app

    write_app(out)
    show(Console(), f"for flwr run: {out}")


@fleet_app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/fleet-demo"),
    rounds: Annotated[int, typer.Option(help="How many rounds to train.", min=1)] = 4,
    app: Annotated[
        Path | None, typer.Option(help="A Flower app of one's own; by default what fleet app writes.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="The gateway's port; a free one by default.")] = None,
) -> None:
    """Train digits over a SuperLink behind its gateway and three SuperNodes on this machine, all with TLS."""
    _require_flower()
    if app is not None and not (app / "pyproject.toml").is_file():
        raise InvalidInput(f"--app {app} is no Flower app: give a folder as fedfeast fleet app writes it.")
    run_demo(None if app is None else app.resolve(), rounds, out, Console(), port)


def run_demo(app: Path | None, rounds: int, out: Path, console: Console, port: int | None = None) -> None:
    """Train digits over a SuperLink and three SuperNodes, telling what happens; every process ends with it."""
    from fedfeast.flower.app import write_app
    from fedfeast.flower.local_fleet import LocalFleet
    from fedfeast.presentation.pictures import draw_curves
    from fedfeast.presentation.tables import describe_run
    from fedfeast.runs import Run

    folder = Path(tempfile.mkdtemp(prefix="fedfeast-fleet-"))
    fleet = LocalFleet(folder / "fleet", port)
    try:
        with fleet:
            show(console, f"SuperLink on {fleet.superlink_address}, which the operator alone reaches")
            show(console, f"gateway on {fleet.address}, with TLS: nodes reach it, and must prove who they are")
            fleet.start_superlink()
            for index, (name, budget) in enumerate(BUDGETS_MACS.items()):
                fleet.start_node(
                    name, {"partition-id": index, "num-partitions": 3, "name": name, "budget-macs": budget}
                )
                show(console, f"SuperNode {name} with a budget of {budget:.3g} MACs")
            config = {"recipe": "digits", "out": str(out.resolve()), "settings": SETTINGS.format(rounds=rounds)}
            if app is None:
                app = fleet.folder / "app"
                write_app(app)
            fleet.submit(app, config)
            _follow(fleet, out, console)
    finally:
        fleet.remove()
        folder.rmdir()
    run, picture = Run.open(out), out / "curve.png"
    draw_curves([run], picture)
    show(console, *describe_run({**run.summary, "picture": str(picture)}, run.folder.budgets_macs()))


def _follow(fleet: "LocalFleet", out: Path, console: Console) -> None:
    """Repeat the server's log until the run has its summary."""
    log, shown, end = out / "fleet.log", 0, time.monotonic() + PATIENCE_SECONDS
    while True:
        finished = (out / "summary.json").is_file()
        text = log.read_text() if log.is_file() else ""
        whole = text.rfind("\n") + 1
        if whole > shown:
            show(console, text[shown : whole - 1])
            shown = whole
        if finished and "population score" in text:
            return
        if time.monotonic() > end or fleet.processes["superlink"].poll() is not None:
            raise RuntimeError(f"the fleet did not finish: {fleet.log('superlink')[-3000:]}")
        time.sleep(0.5)


def _require_flower() -> None:
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise InvalidInput("Flower is not installed: pip install 'fedfeast[flower]'.")
