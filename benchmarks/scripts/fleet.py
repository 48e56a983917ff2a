"""Seconds a round, simulation against a fleet of real processes, and the server app's memory at 3 and 12 nodes."""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fedfeast.federation import Client, UpdatePolicy
from fedfeast.flower.local_fleet import LocalFleet
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_method
from fedfeast.recipes.recipe import load_recipe
from fedfeast.runs import Run

SCRIPTS = Path(__file__).parent
DEPLOY = Path(__file__).parents[2] / "deploy"
PATIENCE_SECONDS = 900.0


def wait_for(path: Path, fleet: LocalFleet) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        if time.monotonic() > end:
            raise RuntimeError(f"{path} did not come: {fleet.log('superlink')[-3000:]}")
        time.sleep(0.5)


def digits(folder: Path, rounds: int) -> dict[str, Any]:
    """Return seconds a round of three digits clients, simulated and over three nodes."""
    settings = [
        "population.num_clients=3",
        "training.clients_per_round=3",
        f"training.rounds={rounds}",
        f"evaluation.every_rounds={rounds}",
    ]
    simulated = Run.create("digits", folder / "simulated", settings).train()
    with LocalFleet(folder / "fleet") as fleet:
        fleet.start_superlink()
        for index in range(3):
            fleet.start_node(f"node-{index}", {"partition-id": index, "num-partitions": 3})
        words = "; ".join([*settings, "fleet.least_clients=3"])
        fleet.submit(DEPLOY, {"recipe": "digits", "out": str(folder / "run"), "settings": words})
        wait_for(folder / "run" / "summary.json", fleet)
    rows = {"simulation": simulated.folder.metrics(), "fleet": Run.open(folder / "run").folder.metrics()}
    return {name: [row["seconds"] for row in one] for name, one in rows.items()}


def payload(folder: Path, budgets: list[float], rounds: int, rule: str = "mean") -> list[dict[str, Any]]:
    """Return the rounds of a fleet whose nodes send every slice back a little enlarged."""
    with LocalFleet(folder / "fleet") as fleet:
        fleet.start_superlink()
        for index, budget in enumerate(budgets):
            fleet.start_node(f"node-{index:02d}", {"name": f"node-{index:02d}", "budget-macs": budget, "step": index})
        words = fleet.run_words(SCRIPTS / "fleet_app", {"out": str(folder / "out"), "rule": rule})
        fleet.start("run", [*words, "--run-config", f"nodes={len(budgets)} rounds={rounds}"])
        wait_for(folder / "out" / "done", fleet)
    rows: list[dict[str, Any]] = json.loads((folder / "out" / "rounds.json").read_text())
    return rows


def in_process(budgets: list[float], rounds: int) -> list[float]:
    """Return the seconds of the same round without a fleet: gather, check, add up, merge."""
    method, _ = build_method(load_recipe("cifar100-paper"))
    flat = torch.from_numpy(named_generator(0, "payload").standard_normal(method.network.layout.size)).float()
    clients = [Client(index, f"node-{index:02d}", budget, 500) for index, budget in enumerate(budgets)]
    assignments, _ = method.plan_round(method.initial_state(), flat, clients, 0, named_generator(0))
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        aggregator = UpdatePolicy().aggregator(flat, len(assignments), checked=True)
        for assignment in assignments:
            sent = assignment.slice_map.gather(flat)
            aggregator.take(assignment, sent, sent * 1.01, num_examples=500)
        method.merge(flat, aggregator.answers)
        seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["digits", "payload", "memory"])
    parser.add_argument("--memory-budget", type=float, default=200e6, help="MACs of every node in the memory part")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fedfeast-benchmark-"))
    result: dict[str, Any] = {
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "flwr", "numpy")},
        "cores": os.cpu_count(),
        "load_before": os.getloadavg(),
    }
    try:
        if chosen.only in (None, "digits"):
            result["digits"] = digits(folder / "digits", chosen.rounds)
        if chosen.only in (None, "payload"):
            budgets = [25e6, 200e6, 1500e6]
            result["payload"] = {"simulation": in_process(budgets, chosen.rounds)}
            result["payload"]["fleet"] = payload(folder / "payload", budgets, chosen.rounds)
        if chosen.only in (None, "memory"):
            result["memory"] = {
                f"{rule}, {nodes} nodes": payload(
                    folder / f"memory-{rule}-{nodes}", [chosen.memory_budget] * nodes, 2, rule
                )
                for rule in ("mean", "clipped-mean")
                for nodes in (3, 12)
            }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result["load_after"] = os.getloadavg()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
