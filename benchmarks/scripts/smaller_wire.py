"""Bytes and accuracy by the form in which weights travel: the same recipe and seeds over every setting of [wire].

On digits, on the CPU: python benchmarks/scripts/smaller_wire.py --out benchmarks/results/DATE-smaller-wire.md
400 rounds of CIFAR-100 on a GPU: python benchmarks/scripts/smaller_wire.py cifar100-short --set training.rounds=400
    --set data.folder=DATA --set wire.state_gib=8 --set checkpoint.every_rounds=200 --seeds 0 --folder runs/smaller-wire
    --out benchmarks/results/DATE-smaller-wire-cifar100.md
A call that was stopped goes on where the same --folder is given. --only names the settings to train: several calls can
train some each in one --folder at the same time, and one after them with all of these makes the table.
"""

import argparse
import json
import platform
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from result_files import write_result

import fedfeast
from fedfeast.recipes.recipe import parse_setting

SETTINGS: dict[str, dict[str, Any]] = {
    "lossless": {},
    "bfloat16 back": {"up": "bfloat16"},
    "bfloat16 both ways": {"down": "bfloat16", "up": "bfloat16"},
    "int8 back": {"up": "int8"},
    "int8 back, no error feedback": {"up": "int8", "error_feedback": False},
    "int8 to clients": {"down": "int8"},
    "int8 to clients, differences": {"down": "int8", "down_deltas": True},
    "int8 both ways": {"down": "int8", "up": "int8"},
    "int8 both ways, differences": {"down": "int8", "down_deltas": True, "up": "int8"},
    "the largest 10 % back": {"up_topk": 0.1},
    "the largest 10 % back, int8": {"up": "int8", "up_topk": 0.1},
    "the largest 10 % back, int8, no error feedback": {"up": "int8", "up_topk": 0.1, "error_feedback": False},
}


def measure(recipe: str, name: str, seed: int, settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Train one setting with one seed, or read what an earlier call trained; return what it came to."""
    wire = {f"wire.{key}": value for key, value in SETTINGS[name].items()}
    place = folder / f"{list(SETTINGS).index(name):02d}-{seed}"
    run = fedfeast.train(recipe, place, {**settings, **wire, "seed": seed})
    traffic = run.summary["traffic"]
    return {
        "setting": name,
        "wire": SETTINGS[name],
        "seed": seed,
        "population_score": run.population_score,
        "largest": run.curve.points[-1].value,
        "bytes_down": traffic["bytes_down"],
        "bytes_up": traffic["bytes_up"],
        "seconds": run.summary["training_seconds"],
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a Markdown table: a setting a line, means over seeds."""
    lines = [
        "| wire | MB to clients | MB back | both, of lossless | score | by seed | against lossless, seed by seed |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    plain = {row["seed"]: row for row in rows if not row["wire"]}
    for name in dict.fromkeys(row["setting"] for row in rows):
        own = [row for row in rows if row["setting"] == name]
        down, up = (mean(row[way] for row in own) / 1e6 for way in ("bytes_down", "bytes_up"))
        whole = mean(row["bytes_down"] + row["bytes_up"] for row in plain.values()) / 1e6
        scores = [100 * row["population_score"] for row in own]
        gains = [score - 100 * plain[row["seed"]]["population_score"] for score, row in zip(scores, own, strict=True)]
        cells = [name, f"{down:.1f}", f"{up:.1f}", f"{100 * (down + up) / whole:.0f} %", f"{mean(scores):.2f}"]
        cells += [" / ".join(f"{one:.2f}" for one in scores), " / ".join(f"{one:+.2f}" for one in gains)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Train every setting with every seed; print the table, and write it where it is to be kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", default="digits")
    parser.add_argument("--set", action="append", default=[], help="a setting of the recipe, key=value")
    parser.add_argument("--only", choices=SETTINGS, nargs="+", default=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--folder", type=Path, help="keep the runs here: a call that was stopped goes on")
    parser.add_argument("--out", type=Path, help="write the result here, and its numbers beside it")
    given = parser.parse_args()
    if given.out is not None and "lossless" not in given.only:
        parser.error("--out needs lossless among --only: all others are compared with it")
    settings = dict(parse_setting(one) for one in given.set)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        for seed in given.seeds:
            for name in given.only:
                rows.append(measure(given.recipe, name, seed, settings, folder))
                print(json.dumps(rows[-1]), flush=True)
    words = " ".join(["benchmarks/scripts/smaller_wire.py", given.recipe, *(f"--set {one}" for one in given.set)])
    seeds = " ".join(map(str, given.seeds))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    about = f"{datetime.now(UTC):%Y-%m-%d}, {device}, {torch.get_num_threads()} threads, torch {torch.__version__}."
    if "lossless" not in given.only:
        return
    lines = ["# A smaller wire", "", f"`python {words} --seeds {seeds}`; {about}", "", *table(rows)]
    print("\n".join(lines))
    if given.out is not None:
        write_result(given.out, "\n".join(lines) + "\n", rows)


if __name__ == "__main__":
    main()
