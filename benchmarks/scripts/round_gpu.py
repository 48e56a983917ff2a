"""Measure a round on one GPU: the graph engine against the eager one in the same run, and where time goes.

python benchmarks/scripts/round_gpu.py --set data.folder=FOLDER --out benchmarks/results/DATE-round-gpu.md

With --against CHECKOUT, another version's rounds are timed too, by turns with this one's.
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from copy import copy
from dataclasses import fields, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from result_files import write_result
from torch.profiler import ProfilerActivity, profile

from fedfeast.data.round_batches import BatchRecord, make_round
from fedfeast.engines import EagerEngine, GraphEngine
from fedfeast.federation import Assignment, Engine, LocalSgd, RoundOrder, sample_cohort
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import Federation, assemble

HERE = Path(__file__).parent
KINDS = {
    "convolutions": ("convolve", "_convolve", "_input_gradient"),
    "weight gradients": ("weight_gradients", "_weight_gradient"),
    "batch normalisation": ("_normalise", "_sum_gradients", "_norm_gradient"),
    "vectors": ("_gather", "_add_gradients", "_square_sums", "_step", "_accumulate"),
}
PREPARES_AHEAD = "ahead" in {field.name for field in fields(RoundOrder)}  # which older versions do not


def planned(federation: Federation, flat: torch.Tensor, round_index: int) -> list[Assignment]:
    """Return the assignments of a round as training would draw them."""
    recipe = federation.recipe
    generator = named_generator(recipe.seed, "cohort", round_index)
    cohort = sample_cohort(federation.participants, recipe.training.clients_per_round, generator)
    clients = [federation.clients[index] for index in cohort]
    generator = named_generator(recipe.seed, "plan", round_index)
    return federation.method.plan_round(federation.method.initial_state(), flat, clients, round_index, generator)[0]


def time_rounds(federation: Federation, engine: Engine, rounds: range, flat: torch.Tensor) -> tuple[float, float, int]:
    """Return the mean seconds of a round, the setup seconds of all, and the steps of all."""
    setup, steps, started = 0.0, 0, time.perf_counter()
    for round_index in rounds:
        order = RoundOrder(flat, planned(federation, flat, round_index), round_index, 0.05)
        if PREPARES_AHEAD:
            order = replace(order, ahead=[one.client for one in planned(federation, flat, round_index + 1)])
        result = engine.run_round(order)
        setup, steps = setup + result.setup_seconds, steps + result.num_steps
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / len(rounds), setup, steps


def time_queueing(federation: Federation, engine: GraphEngine, flat: torch.Tensor, rounds: range) -> float:
    """Return the mean seconds that this process takes to queue a round's work; it waits only where a queue is full."""
    seconds, queue = 0.0, engine._train

    def timed(*given: Any) -> Any:
        nonlocal seconds
        started = time.perf_counter()
        aggregator = queue(*given)
        seconds += time.perf_counter() - started
        return aggregator

    with patch.object(engine, "_train", timed):
        time_rounds(federation, engine, rounds, flat)
    return seconds / len(rounds)


def training_flops(federation: Federation, engine: GraphEngine, flat: torch.Tensor, rounds: range) -> float:
    """Return the floating-point operations of the rounds: three passes' worth of two per multiply-accumulate."""
    macs = sum(
        federation.method.network.macs(one_pass.architecture)
        for round_index in rounds
        for assignment in planned(federation, flat, round_index)
        for passes in engine.draw(assignment, round_index).passes
        for one_pass in passes
    )
    return 6.0 * macs * federation.preparation.batch_size


def count_bytes(federation: Federation, engine: GraphEngine, flat: torch.Tensor, rounds: range) -> float:
    """Return the mean bytes of a round that kernels of passes are given, each tensor once for each launch."""
    from fedfeast.engines.graphs.halo.compiling import Kernel
    from fedfeast.engines.graphs.kernels import launching
    from fedfeast.engines.graphs.kernels.compiling import plan_launches

    given = 0

    def count(tensors: Iterable[Any]) -> None:
        nonlocal given
        given += sum(one.nbytes for one in tensors if isinstance(one, torch.Tensor))

    note_launch, note_program = launching.launch, Kernel.launch

    def launch(kernel: Any, grid: Any, *arguments: Any, **named: Any) -> None:
        count([*arguments, *named.values()])
        note_launch(kernel, grid, *arguments, **named)

    def launch_program(self: Kernel, grid: Any, *arguments: Any) -> None:
        count(arguments)
        note_program(self, grid, *arguments)

    of_pass: dict[Any, int] = {}
    modules = [module for module in list(sys.modules.values()) if getattr(module, "launch", None) is note_launch]
    with ExitStack() as patched:
        for module in modules:
            patched.enter_context(patch.object(module, "launch", launch))
        patched.enter_context(patch.object(Kernel, "launch", launch_program))
        for architecture in engine.context.architectures:
            given, alone = 0, copy(engine.context)
            alone.architectures = [architecture]
            plan_launches(alone)
            of_pass[architecture] = given
    return sum(
        of_pass[one_pass.architecture]
        for round_index in rounds
        for assignment in planned(federation, flat, round_index)
        for passes in engine.draw(assignment, round_index).passes
        for one_pass in passes
    ) / len(rounds)


def time_preparation(federation: Federation, engine: GraphEngine, flat: torch.Tensor) -> tuple[int, float]:
    """Return the examples of round 0, and the milliseconds it takes to gather, augment and mix them."""
    drawn = [engine.draw(assignment, 0) for assignment in planned(federation, flat, 0)]
    clients, plans = [one.assignment.client.index for one in drawn], [one.plan for one in drawn]
    preparation, times = federation.preparation, []
    record = BatchRecord.of(federation.examples.pool, preparation, torch.bfloat16)
    for _ in range(12):
        torch.cuda.synchronize()
        started = time.perf_counter()
        rows = make_round(federation.examples, clients, plans, record, preparation.normalisation)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - started))
    return len(rows) * preparation.batch_size, median(times[2:])


def profile_round(federation: Federation, engine: GraphEngine, flat: torch.Tensor) -> tuple[dict[str, float], int]:
    """Return the share of device time by kind of work in one round, and the number of kernels."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        engine.run_round(RoundOrder(flat, planned(federation, flat, 0), 0, 0.05))
        torch.cuda.synchronize()
    micros: Counter[str] = Counter()
    events = [event for event in profiled.events() if event.device_type.name == "CUDA"]
    for event in events:
        kind = next((kind for kind, names in KINDS.items() if event.name in names), "all else")
        micros[kind] += event.device_time
    total = sum(micros.values())
    return {kind: value / total for kind, value in micros.most_common()}, len(events)


def measure(settings: list[str], recipe_name: str, num_rounds: int, eager_rounds: int) -> dict[str, Any]:
    recipe = load_recipe(recipe_name, [*settings, "engine.name=graphs"])
    federation = assemble(recipe)
    flat, rounds = federation.initial_weights(), range(num_rounds)
    engine = federation.engine()
    assert isinstance(engine, GraphEngine)
    _, setup, steps = time_rounds(federation, engine, rounds, flat)
    seconds, setup_again, _ = time_rounds(federation, engine, rounds, flat)
    queueing = time_queueing(federation, engine, flat, range(min(num_rounds, 20)))
    free, total = torch.cuda.mem_get_info()
    prepared_examples, preparation_ms = time_preparation(federation, engine, flat)
    shares, kernels = profile_round(federation, engine, flat)
    first_passes = sum(len(passes) for one in planned(federation, flat, 0) for passes in engine.draw(one, 0).passes)
    sgd = LocalSgd(recipe.training.weight_decay, recipe.training.clip_norm)
    eager = EagerEngine(
        federation.method, federation.examples, federation.preparation, sgd, recipe.seed, device=federation.device
    )
    time_rounds(federation, eager, range(1), flat)
    eager_seconds, _, _ = time_rounds(federation, eager, range(eager_rounds), flat)
    same_rounds, _, _ = time_rounds(federation, engine, range(eager_rounds), flat)
    return {
        "recipe": recipe.name,
        "seconds_per_round": seconds,
        "queueing_seconds": queueing,
        "eager_seconds_per_round": eager_seconds,
        "eager_ratio": eager_seconds / same_rounds,
        "capture_seconds": setup,
        "capture_seconds_again": setup_again,
        "graphs": engine.context.num_graphs,
        "peak_gib": (total - free) / 2**30,  # of the whole device, graphs included
        "prepared_examples": prepared_examples,
        "preparation_ms": preparation_ms,
        "rounds": num_rounds,
        "eager_rounds": eager_rounds,
        "steps_per_round": steps / num_rounds,
        "tflops": training_flops(federation, engine, flat, rounds) / (seconds * num_rounds) / 1e12,
        "kernels_per_pass": kernels / first_passes,
        "bytes_per_round": count_bytes(federation, engine, flat, rounds),
        "time_shares": shares,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": date.today().isoformat(),
    }


def time_by_turns(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Return the seconds a round of the other version and of this one, each in a process of its own."""
    seconds: dict[str, list[float]] = {"before": [], "now": []}
    command = [
        sys.executable,
        __file__,
        "--rounds-alone",
        "--recipe",
        arguments.recipe,
        "--rounds",
        str(arguments.rounds),
    ]
    command += [part for setting in arguments.settings for part in ("--set", setting)]
    for _ in range(arguments.turns):
        for name, checkout in (("before", arguments.against), ("now", HERE.parents[1])):
            paths = [str(checkout / "src"), str(HERE), os.environ.get("PYTHONPATH", "")]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            seconds[name].append(json.loads(done.stdout.splitlines()[-1]))
    return seconds


def time_alone(settings: list[str], recipe_name: str, num_rounds: int) -> float:
    """Return the seconds of a round once all graphs are there."""
    federation = assemble(load_recipe(recipe_name, [*settings, "engine.name=graphs"]))
    flat, engine = federation.initial_weights(), federation.engine()
    time_rounds(federation, engine, range(num_rounds), flat)
    return time_rounds(federation, engine, range(num_rounds), flat)[0]


def to_markdown(result: dict[str, Any], command: str) -> str:
    shares = ", ".join(f"{kind} {100 * share:.0f} %" for kind, share in result["time_shares"].items())
    return f"""# A round of {result["recipe"]} on one GPU

{result["device"]}, torch {result["torch"]}, Python {result["python"]}, {result["date"]}. Command: `{command}`

| | |
|---|---|
| graph engine, bfloat16, seconds a round (steady, mean of {result["rounds"]}) | {result["seconds_per_round"]:.3f} |
| queueing a round's work, seconds of this process (mean of the first 20) | {result["queueing_seconds"]:.3f} |
| local steps a round | {result["steps_per_round"]:.1f} |
| milliseconds a step | {1e3 * result["seconds_per_round"] / result["steps_per_round"]:.2f} |
| eager engine, float32, seconds a round (mean of {result["eager_rounds"]}) | {result["eager_seconds_per_round"]:.2f} |
| eager over graphs, the same rounds | {result["eager_ratio"]:.1f} |
| compiling, warming up and capturing {result["graphs"]} graphs, seconds in all | {result["capture_seconds"]:.1f} |
| device memory at most, GiB | {result["peak_gib"]:.1f} |
| preparing {result["prepared_examples"]} examples, milliseconds (median of 10) | {result["preparation_ms"]:.1f} |
| arithmetic rate, TFLOP/s | {result["tflops"]:.1f} |
| kernels a pass | {result["kernels_per_pass"]:.0f} |
| bytes given to kernels of passes in a round, GB (each tensor once a launch) | {result["bytes_per_round"] / 1e9:.0f} |
| of these a second, TB/s | {result["bytes_per_round"] / result["seconds_per_round"] / 1e12:.2f} |

Share of device time: {shares}.
{_turns(result.get("by_turns"))}"""


def _turns(by_turns: dict[str, list[float]] | None) -> str:
    if by_turns is None:
        return ""
    pairs = zip(by_turns["before"], by_turns["now"], strict=True)
    rows = "".join(f"| {turn} | {before:.4f} | {now:.4f} |\n" for turn, (before, now) in enumerate(pairs, 1))
    ratio = sum(by_turns["now"]) / sum(by_turns["before"])
    return f"""
Seconds a round by turns, each version in a process of its own: {ratio:.3f} of the time before.

| turn | before | now |
|---|---|---|
{rows}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default=str(HERE / "round_gpu.toml"))
    parser.add_argument(
        "--against", type=Path, help="a checkout of another version, to be timed by turns with this one"
    )
    parser.add_argument("--turns", type=int, default=2, help="of each version")
    parser.add_argument("--rounds-alone", action="store_true", help="time rounds and print their seconds, nothing else")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--eager-rounds", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--out", type=Path, help="a Markdown file; a JSON file is written beside it")
    arguments = parser.parse_args()
    if arguments.rounds_alone:
        print(time_alone(arguments.settings, arguments.recipe, arguments.rounds))
        return
    by_turns = time_by_turns(arguments) if arguments.against else None
    result = measure(arguments.settings, arguments.recipe, arguments.rounds, arguments.eager_rounds)
    result["by_turns"] = by_turns
    text = to_markdown(result, shlex.join(["python", *sys.argv]))
    print(text)
    if arguments.out:
        write_result(arguments.out, text, result)


if __name__ == "__main__":
    main()
