"""A fleet on this machine: TLS, authenticated nodes, unequal budgets, a curve, and nothing left behind."""

import tempfile
import time
from pathlib import Path

from rich.console import Console

from fedfeast.flower.local_fleet import LocalFleet
from fedfeast.presentation.pictures import draw_curves
from fedfeast.presentation.tables import print_summary
from fedfeast.runs import Run

BUDGETS_MACS = {"small": 2e5, "middle": 1.5e6, "top": 12e6}
# One thread a node: three of them share this machine.
SETTINGS = (
    "population.num_clients=3; partition.alpha_eff=10; population.gamma=0; training.rounds={rounds}; "
    "training.batch_size=32; evaluation.every_rounds=1; fleet.least_clients=3; fleet.deadline_seconds=120"
)
PATIENCE_SECONDS = 600.0


def run_demo(app: Path, rounds: int, out: Path, console: Console, port: int | None = None) -> Run:
    """Train digits over a SuperLink and three SuperNodes, telling what happens; every process ends with it."""
    folder = Path(tempfile.mkdtemp(prefix="fedfeast-fleet-"))
    fleet = LocalFleet(folder / "fleet", secure=True, port=port)
    try:
        with fleet:
            console.print(f"SuperLink on {fleet.address}, with TLS; nodes must prove who they are", highlight=False)
            fleet.start_superlink()
            for index, (name, budget) in enumerate(BUDGETS_MACS.items()):
                fleet.start_node(
                    name, {"partition-id": index, "num-partitions": 3, "name": name, "budget-macs": budget}
                )
                console.print(f"SuperNode {name} with a budget of {budget:.3g} MACs", highlight=False)
            config = {"recipe": "digits", "out": str(out.resolve()), "settings": SETTINGS.format(rounds=rounds)}
            fleet.submit(app, config)
            _follow(fleet, out, console)
    finally:
        fleet.remove()
        folder.rmdir()
    run = Run.open(out)
    draw_curves([run], out / "curve.png")
    print_summary(run, out / "curve.png", None, console)
    return run


def _follow(fleet: LocalFleet, out: Path, console: Console) -> None:
    """Repeat the server's log until the run has its summary."""
    log, shown, end = out / "fleet.log", 0, time.monotonic() + PATIENCE_SECONDS
    while True:
        finished = (out / "summary.json").is_file()
        text = log.read_text() if log.is_file() else ""
        whole = text.rfind("\n") + 1
        if whole > shown:
            console.print(text[shown : whole - 1], highlight=False, markup=False, soft_wrap=True)
            shown = whole
        if finished and "population score" in text:
            return
        if time.monotonic() > end or fleet.processes["superlink"].poll() is not None:
            raise RuntimeError(f"the fleet did not finish: {fleet.log('superlink')[-3000:]}")
        time.sleep(0.5)
