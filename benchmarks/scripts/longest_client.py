"""Time rounds on one GPU whole, and the same rounds with their longest clients alone: what a round waits for.

python benchmarks/scripts/longest_client.py --rounds 12 --set data.folder=FOLDER
"""

import argparse
import time
from collections.abc import Sequence
from statistics import mean

import torch
from round_gpu import HERE, planned

from fedfeast.federation import Assignment, Engine, RoundOrder
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import assemble

PARTS = {
    "whole": slice(None),
    "longest": slice(1),
    "two longest": slice(2),
    "three longest": slice(3),
    "others": slice(1, None),
}


def seconds_of(engine: Engine, flat: torch.Tensor, assignments: Sequence[Assignment], round_index: int) -> float:
    """Return the seconds of a round, the better of two."""
    times = []
    for _ in range(2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        engine.run_round(RoundOrder(flat, list(assignments), round_index, 0.05))
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default=str(HERE / "round_gpu.toml"))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    arguments = parser.parse_args()
    federation = assemble(load_recipe(arguments.recipe, [*arguments.settings, "engine.name=graphs"]))
    flat, engine = federation.initial_weights(), federation.engine()
    rounds = [
        sorted(planned(federation, flat, index), key=lambda one: -one.client.num_examples)
        for index in range(arguments.rounds)
    ]
    for index, assignments in enumerate(rounds):  # capture
        for part in (slice(None), slice(1)):
            engine.run_round(RoundOrder(flat, assignments[part], index, 0.05))
    table = [
        {name: seconds_of(engine, flat, assignments[part], index) for name, part in PARTS.items()}
        for index, assignments in enumerate(rounds)
    ]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: seconds of rounds 0 to {arguments.rounds - 1}")
    for index, (row, assignments) in enumerate(zip(table, rounds, strict=True)):
        examples = [one.client.num_examples for one in assignments]
        print(index, ", ".join(f"{name} {seconds:.3f}" for name, seconds in row.items()), "examples", examples)
    print("mean", ", ".join(f"{name} {mean(row[name] for row in table):.4f}" for name in PARTS))


if __name__ == "__main__":
    main()
