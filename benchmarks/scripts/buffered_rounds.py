"""Time to accuracy of buffered merges against synchronous rounds: by a simulated clock, and with real processes."""

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from fedfeast.flower.local_fleet import LocalFleet
from fedfeast.machine import processor_name
from fedfeast.planning import plan_recipe
from fedfeast.runs import Run

DEPLOY = Path(__file__).parents[2] / "deploy"
TARGETS = (0.8, 0.9, 0.95)
ANSWERS, AT_ONCE, LOOKS = 600, 10, 30  # of all modes alike: answers trained for, clients at work, validations
PATIENCE_SECONDS = 300.0  # until a fleet of processes has begun
SLOW_DATA = """
import time
from sklearn.datasets import load_digits

def shots():
    time.sleep({seconds})
    digits = load_digits()
    return (digits.images[{first}::4] * 15).astype("uint8"), digits.target[{first}::4]
"""


def settings_of(mode: str, seconds: dict[str, float]) -> dict[str, Any]:
    """Return the settings of a mode, given what a round takes clients.

    synchronous; deadline p75: without those who take longer; buffered K [ANSWERS [EXPONENT]].
    """
    word, *numbers = mode.split()
    shared: dict[str, Any] = {"simulation.speeds": "pareto", "training.clients_per_round": AT_ONCE}
    answers = ANSWERS
    if word == "buffered":
        shared |= {"fleet.mode": "buffered", "fleet.buffer": int(numbers[0])}
        answers = int(numbers[1]) if len(numbers) > 1 else answers
        shared |= {"fleet.staleness_exponent": float(numbers[2])} if len(numbers) > 2 else {}
    elif word == "deadline":
        shared["fleet.deadline_seconds"] = seconds[numbers[0]]
    rounds = answers // shared.get("fleet.buffer", AT_ONCE)
    looks = LOOKS * answers // ANSWERS
    return {**shared, "training.rounds": rounds, "evaluation.every_rounds": max(rounds // looks, 1)}


def simulate(mode: str, seed: int, tail: float, folder: Path) -> dict[str, Any]:
    """Return when a run of digits reached the targets by the simulated clock, and how it ended."""
    common = {"seed": seed, "simulation.tail": tail}
    seconds = plan_recipe("digits", {**common, **settings_of("synchronous", {})})["clock"]["client_seconds"]
    run = Run.create("digits", folder, {**common, **settings_of(mode, seconds)}).train()
    rows = run.folder.metrics()
    seen = [(row["clock_seconds"], row["validation_score"]) for row in rows if "validation_score" in row]
    answers = Counter(client for row in rows for client in row["answered"])
    ages = [age for row in rows for age in row.get("ages", [0] * len(row["answered"]))]
    return {
        "mode": mode,
        "seed": seed,
        "tail": tail,
        "seconds_to": {str(one): next((at for at, score in seen if score >= one), None) for one in TARGETS},
        "clock_seconds": rows[-1]["clock_seconds"],
        "best_validation": max(score for _, score in seen),
        "test": run.population_score,
        "answers": sum(answers.values()),
        "clients_heard": len(answers),
        "mean_age": float(np.mean(ages)),
        "oldest": max(ages),
        "seen": [(round(at, 3), round(score, 4)) for at, score in seen],
    }


def over_processes(mode: str, seconds: float, slow_seconds: float, folder: Path) -> dict[str, Any]:
    """Return the rounds that four real nodes finish in so many seconds; the last one takes some more for a message."""
    word, *numbers = mode.split()
    settings = ["training.clients_per_round=4", "fleet.least_clients=4", "evaluation.every_rounds=1"]
    settings += ["training.rounds=1000", "training.schedule=constant"]
    settings += ["fleet.mode=buffered", f"fleet.buffer={numbers[0]}"] if word == "buffered" else []
    out = folder / "run"
    with LocalFleet(folder / "fleet") as fleet:
        fleet.start_superlink()
        for index in range(4):
            place = folder / f"node_{index}.py"
            place.write_text(SLOW_DATA.format(seconds=slow_seconds if index == 3 else 0, first=index))
            config: dict[str, str | float] = {"name": f"node-{index}", "data": f"{place}:shots", "budget-macs": 5e6}
            fleet.start_node(f"node-{index}", config)
        fleet.submit(DEPLOY, {"recipe": "digits", "out": str(out), "settings": "; ".join(settings)})
        log = out / "fleet.log"
        end = time.monotonic() + PATIENCE_SECONDS
        while not log.is_file() or "training begins" not in log.read_text():
            if time.monotonic() > end:
                raise RuntimeError(f"the fleet did not begin: {fleet.log('superlink')[-3000:]}")
            time.sleep(0.5)
        time.sleep(seconds)
        rows = Run.open(out).folder.metrics()
    return {
        "mode": mode,
        "slow_seconds": slow_seconds,
        "seconds": np.cumsum([row["seconds"] for row in rows]).round(1).tolist(),
        "scores": [row["validation_score"] for row in rows],
        "answered": [row["answered"] for row in rows],
        "ages": [row.get("ages") for row in rows],
        "load": os.getloadavg(),
    }


def draw(lines: Path, picture: Path, modes: list[str]) -> None:
    """Draw the validated score of the simulated modes over the simulated clock, a panel for every seed."""
    rows = [row for line in lines.read_text().splitlines() if "seen" in (row := json.loads(line))]
    seeds = sorted({row["seed"] for row in rows})
    figure, panels = plt.subplots(1, len(seeds), figsize=(4 * len(seeds), 3.2), sharey=True, squeeze=False)
    for panel, seed in zip(panels[0], seeds, strict=True):
        for mode in modes:
            for row in rows:
                if (row["mode"], row["seed"]) == (mode, seed):
                    panel.plot(*zip(*row["seen"], strict=True), label=mode, linewidth=1.4)
        panel.set(title=f"seed {seed}", xlabel="simulated seconds")
    panels[0][0].set_ylabel("validated population score")
    panels[0][-1].legend(frameon=False)
    figure.savefig(picture, dpi=120, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", default="synchronous,deadline p75,deadline p95,buffered 5,buffered 2")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--tails", default="1.2")
    parser.add_argument("--processes", type=float, default=0, help="so many seconds of real processes instead")
    parser.add_argument("--slow-seconds", type=float, default=20.0, help="that one of four nodes takes more")
    parser.add_argument("--out", type=Path, help="a file of JSON lines that results are added to")
    parser.add_argument("--picture", type=Path, help="draw what is in --out, and run nothing")
    chosen = parser.parse_args()
    modes = chosen.modes.split(",")
    if chosen.picture is not None:
        draw(chosen.out, chosen.picture, modes)
        return
    about = {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "numpy", "flwr")},
    }
    for seed, tail, mode in (
        (s, t, m) for s in chosen.seeds.split(",") for t in chosen.tails.split(",") for m in modes
    ):
        folder, began = Path(tempfile.mkdtemp(prefix="fedfeast-benchmark-")), time.monotonic()
        try:
            if chosen.processes:
                result = over_processes(mode, chosen.processes, chosen.slow_seconds, folder)
            else:
                result = simulate(mode, int(seed), float(tail), folder / "run")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        line = json.dumps({**result, "wall_seconds": round(time.monotonic() - began, 1), **about})
        print(line)
        if chosen.out is not None:
            with chosen.out.open("a") as file:
                file.write(f"{line}\n")


if __name__ == "__main__":
    main()
