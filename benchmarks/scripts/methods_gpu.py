"""Measure a round of every method on one GPU, one after another over the same rounds of the same recipe.

python benchmarks/scripts/methods_gpu.py --set data.folder=FOLDER --out benchmarks/results/DATE-methods-gpu.md
"""

import argparse
import json
import platform
import shlex
import sys
from datetime import date
from pathlib import Path
from typing import Any

import torch
from result_files import write_result
from round_gpu import planned, time_rounds

from fedfeast.engines import GraphEngine
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import assemble

METHODS = ("feast", "heterofl", "scalefl", "fiarse", "deepfednas", "superfednas", "fjord", "fedrolex")


def measure(name: str, recipe_name: str, settings: list[str], num_rounds: int) -> dict[str, Any]:
    """Return a method's seconds a round once its graphs are captured, and its compute against its time."""
    federation = assemble(load_recipe(recipe_name, [*settings, "engine.name=graphs", f"method.name={name}"]))
    flat, engine, rounds = federation.initial_weights(), federation.engine(), range(num_rounds)
    assert isinstance(engine, GraphEngine)
    network = federation.method.network
    macs = sum(
        network.macs(one_pass.architecture)
        for round_index in rounds
        for assignment in planned(federation, flat, round_index)
        for passes in engine.draw(assignment, round_index).passes
        for one_pass in passes
    )
    _, setup, steps = time_rounds(federation, engine, rounds, flat)
    seconds, _, _ = time_rounds(federation, engine, rounds, flat)
    free, total = torch.cuda.mem_get_info()
    return {
        "method": name,
        "seconds_per_round": seconds,
        "steps_per_round": steps / num_rounds,
        "setup_seconds": setup,
        "device_gib": (total - free) / 2**30,
        "tflops": 6.0 * macs * federation.preparation.batch_size / (seconds * num_rounds) / 1e12,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="cifar100-paper")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--out", type=Path, help="a Markdown file; a JSON file is written beside it")
    arguments = parser.parse_args()
    results = []
    for name in arguments.methods.split(","):
        results.append(measure(name, arguments.recipe, arguments.settings, arguments.rounds))
        print(json.dumps(results[-1]), flush=True)
        torch.cuda.empty_cache()
    rows = "\n".join(
        f"| {one['method']} | {one['seconds_per_round']:.3f} | {one['steps_per_round']:.1f} "
        f"| {one['setup_seconds']:.1f} | {one['device_gib']:.1f} | {one['tflops']:.1f} |"
        for one in results
    )
    text = f"""# A round of every method on one GPU

{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}, {date.today()}.
Command: `{shlex.join(["python", *sys.argv])}`

Rounds 0 to {arguments.rounds - 1} of {arguments.recipe}, run once to capture and once to measure, graph engine in
bfloat16. Device memory is what the whole process holds by then.

| method | seconds a round | steps a round | setup, seconds | device memory, GiB | TFLOP/s |
|---|---|---|---|---|---|
{rows}
"""
    print(text)
    if arguments.out:
        write_result(arguments.out, text, results)


if __name__ == "__main__":
    main()
