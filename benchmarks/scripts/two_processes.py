"""Training in two processes of one thread each against one process of one thread, by turns.

Every turn is a whole `fedfeast train` in a fresh folder; counted are the seconds of its rounds, validation included and
the first round left out, so that neither start-up nor warm-up counts. The figure is the ratio of the medians.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch
from result_files import write_result

SETTINGS = {
    "data.name": "synthetic",
    "data.validation_examples": 500,
    "data.calibration_examples": 500,
    "population.num_clients": 200,
    "training.clients_per_round": 24,
    "evaluation.every_rounds": 4,
    "engine.device": "cpu",
    "engine.threads": 1,
}
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def train(processes: int, rounds: int) -> dict[str, Any]:
    """Train once and return what its rounds took."""
    settings = [f"{key}={value}" for key, value in {**SETTINGS, "training.rounds": rounds}.items()]
    words = [word for setting in settings for word in ("--set", setting)]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        command = [*LAUNCH, str(processes), "-m", "fedfeast", "train", "digits", "--out", f"{folder}/run", *words]
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        whole = time.perf_counter() - started
        rows = [json.loads(line) for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
    seconds = sum(row["seconds"] for row in rows[1:])
    return {
        "processes": processes,
        "seconds": round(seconds, 3),
        "steps": sum(row["steps"] for row in rows[1:]),
        "command_seconds": round(whole, 2),
        "load_before": round(load, 2),
    }


def measure(rounds: int, repeats: int) -> dict[str, Any]:
    """Take turns, and return every turn, the medians and their ratio."""
    turns: list[dict[str, Any]] = []
    for _ in range(repeats):
        for processes in (1, 2):
            turns.append(train(processes, rounds))
            print(turns[-1], file=sys.stderr, flush=True)
    medians = {
        processes: statistics.median(turn["seconds"] for turn in turns if turn["processes"] == processes)
        for processes in (1, 2)
    }
    return {
        "date": date.today().isoformat(),
        "command": f"python benchmarks/scripts/two_processes.py --rounds {rounds} --repeats {repeats}",
        "hardware": f"{_processor()}, {os.cpu_count()} cores",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "recipe": "digits",
        "settings": SETTINGS,
        "counted_rounds": rounds - 1,
        "turns": turns,
        "median_seconds": medians,
        "ratio": round(medians[1] / medians[2], 3),
    }


def table(result: dict[str, Any]) -> str:
    """Return the turns and medians as a Markdown table."""
    lines = ["| turn | processes x threads | seconds of the rounds | load average before |", "|---|---|---|---|"]
    for number, turn in enumerate(result["turns"], 1):
        lines.append(f"| {number} | {turn['processes']} x 1 | {turn['seconds']:.2f} | {turn['load_before']:.2f} |")
    for processes, seconds in result["median_seconds"].items():
        lines.append(f"| median | {processes} x 1 | **{seconds:.2f}** | |")
    return "\n".join([*lines, "", f"Two processes are **{result['ratio']:.2f}x** as fast as one."])


def write(result: dict[str, Any], file: Path) -> None:
    """Write the result as Markdown, and as JSON beside it."""
    settings = " ".join(f"{key}={value}" for key, value in result["settings"].items())
    versions = f"Python {result['versions']['python']}, torch {result['versions']['torch']}"
    text = f"""# Two processes of one thread against one, {result["date"]}

{result["hardware"]}; {versions}. The turns alternate, since other jobs may run on the machine; the load average
before a turn also counts the turn before it.

`{result["command"]}`: the recipe `{result["recipe"]}` with
{settings}; of every turn {result["counted_rounds"]} rounds count.

{table(result)}
"""
    write_result(file, text, result)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a Markdown file to write; JSON goes beside it")
    arguments = parser.parse_args()
    result = measure(arguments.rounds, arguments.repeats)
    print(table(result))
    if arguments.out is not None:
        write(result, arguments.out)


if __name__ == "__main__":
    main()
