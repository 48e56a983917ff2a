"""Time the validation and the test curve of a recipe's networks, e.g. on one GPU, and compare with another version.

python benchmarks/scripts/curve_gpu.py --set data.folder=FOLDER --out benchmarks/results/DATE-curve-gpu.md

With PYTHONPATH at another version of src/ the same script measures that one; --compare OTHER.json then sets both side
by side. --weights names a file that the first of them writes, after --rounds of training, and the other reads.
"""

import argparse
import json
import platform
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import torch
from result_files import write_result
from torch.profiler import ProfilerActivity, profile

from fedfeast.evaluation import Curve, Evaluator, measure_sets
from fedfeast.federation import OperatingPoint, RoundOrder, sample_cohort
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import Federation, assemble

Curves = Mapping[str, Curve]
TOGETHER = "validation and test together"


def trained(federation: Federation, num_rounds: int) -> torch.Tensor:
    """Return the global vector after a few rounds; of none, the one that training starts from."""
    recipe, flat = federation.recipe, federation.initial_weights()
    engine, state = federation.engine() if num_rounds else None, federation.method.initial_state()
    for round_index in range(num_rounds):
        generator = named_generator(recipe.seed, "cohort", round_index)
        sampled = sample_cohort(federation.participants, recipe.training.clients_per_round, generator)
        cohort = [federation.clients[index] for index in sampled]
        generator = named_generator(recipe.seed, "plan", round_index)
        assignments, state = federation.method.plan_round(state, flat, cohort, round_index, generator)
        assert engine is not None
        flat = engine.run_round(RoundOrder(flat, assignments, round_index, recipe.training.learning_rate)).flat
    return flat


def weights_of(federation: Federation, file: Path | None, num_rounds: int) -> torch.Tensor:
    """Return the weights of a file, which is written where it is not there yet."""
    if file is not None and file.exists():
        loaded: torch.Tensor = torch.load(file, map_location=federation.device)
        return loaded
    flat = trained(federation, num_rounds)
    if file is not None:
        torch.save(flat.cpu(), file)
    return flat


def works_of(
    federation: Federation, flat: torch.Tensor, points: Sequence[OperatingPoint]
) -> dict[str, Callable[[], Curves]]:
    """Return what is timed: each set by itself, and both as a run's end measures them."""
    validation, method = federation.validation, federation.method
    assert isinstance(validation, Evaluator), "the server must evaluate"
    sets = {"validation": validation, "test": federation.test}

    def alone(name: str) -> Callable[[], Curves]:
        return lambda: {name: sets[name].curve(method, flat, points)}

    def together() -> Curves:
        return {name: one.curve for name, one in measure_sets(sets, method, flat, points).items()}

    return {"validation alone": alone("validation"), "test alone": alone("test"), TOGETHER: together}


def shortened(federation: Federation, examples: int | None) -> Federation:
    """Return a federation whose server has at most so many examples of each kind."""
    if examples is None:
        return federation
    validation, first = federation.validation, torch.arange(examples)
    assert isinstance(validation, Evaluator), "the server must evaluate"
    calibration = federation.test.calibration.select(first)  # one for both, as in a run
    few = [replace(one, calibration=calibration, test=one.test.select(first)) for one in (validation, federation.test)]
    return replace(federation, validation=few[0], tests={**federation.tests, next(iter(federation.tests)): few[1]})


def seconds_of(work: Callable[[], Curves]) -> tuple[float, Curves]:
    wait_for_device()
    started = time.perf_counter()
    curves = work()
    wait_for_device()
    seconds = time.perf_counter() - started
    print(f"{', '.join(curves)}: {seconds:.2f} s", flush=True)
    return seconds, curves


def wait_for_device() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def profiled(work: Callable[[], Curves]) -> dict[str, Any]:
    """Return the device's busy share of the time, its kernels, and the kernels that take most of its time."""
    work()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        seconds, _ = seconds_of(work)
    micros: Counter[str] = Counter()
    kernels = 0
    for event in record.events():
        if event.device_type.name == "CUDA":
            micros[event.name.partition("<")[0][:60]] += event.device_time
            kernels += 1
    total = sum(micros.values())
    shares = {name: value / total for name, value in micros.most_common(8)} if total else {}
    return {"seconds": seconds, "busy_seconds": total / 1e6, "kernels": kernels, "shares": shares}


def use_whole_features() -> None:
    """Measure with features in float32 where this version would take float16; convolutions still multiply in TF32."""
    from fedfeast.evaluation import evaluator
    from fedfeast.evaluation.passes import example_totals, folded

    def layers_by(*given: Any) -> Any:
        layers = folded.layers_by(*given)
        if isinstance(layers, folded.FoldedLayers):
            layers.dtype = torch.float32
        return layers

    for module in (evaluator, example_totals):
        vars(module)["layers_by"] = layers_by


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    federation = shortened(assemble(load_recipe(arguments.recipe, arguments.settings)), arguments.examples)
    flat = weights_of(federation, arguments.weights, arguments.rounds)
    torch.backends.cudnn.deterministic = True  # as a run on a GPU has it
    torch.backends.cudnn.allow_tf32 = not arguments.ieee
    if arguments.whole:
        use_whole_features()
    points = federation.method.operating_points()
    works = works_of(federation, flat, points)
    first, _ = seconds_of(works[TOGETHER])  # prepares the others too
    again = {name: [seconds_of(work) for _ in range(arguments.repeats)] for name, work in works.items()}
    curves = {name: curve for timed in again.values() for name, curve in timed[-1][1].items()}
    on_gpu = federation.device.type == "cuda"
    few = works_of(federation, flat, points[:: max(1, len(points) // 7)])
    return {
        "recipe": arguments.recipe,
        "points": len(points),
        "examples": {name: len(getattr(federation, name).test) for name in ("validation", "test")},
        "seconds_first": first,
        "seconds": {name: min(seconds for seconds, _ in timed) for name, timed in again.items()},
        "accuracies": {name: {one.name: one.value for one in curve.points} for name, curve in curves.items()},
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None,
        "few_points": profiled(few[TOGETHER]) if arguments.profile else None,
        "features": "float32" if arguments.whole else "as the version has them",
        "tf32": torch.backends.cudnn.allow_tf32,
        "device": torch.cuda.get_device_name() if on_gpu else platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": date.today().isoformat(),
    }


def differences(result: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Return by set the largest difference between two versions' values of a network."""
    return {
        name: max(abs(value - other["accuracies"][name][network]) for network, value in values.items())
        for name, values in result["accuracies"].items()
    }


def to_markdown(result: dict[str, Any], other: dict[str, Any] | None, command: str) -> str:
    head = "| | seconds |" + (" the other version | ratio |" if other else "")
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    rows = {**result["seconds"], f"{TOGETHER}, the first time": result["seconds_first"]}
    before = {} if other is None else {**other["seconds"], f"{TOGETHER}, the first time": other["seconds_first"]}
    for name, seconds in rows.items():
        row = f"| {name} | {seconds:.2f} |"
        if other:
            row += f" {before[name]:.2f} | {seconds / before[name]:.2f} |"
        lines.append(row)
    examples = " and ".join(f"{count} {name}" for name, count in result["examples"].items())
    text = f"""# The curves of {result["recipe"]}

{result["device"]}, torch {result["torch"]}, Python {result["python"]}, {result["date"]}. Command: `{command}`

{result["points"]} networks on {examples} examples, recalibration included;
TF32 {"on" if result["tf32"] else "off"}, features {result["features"]}.

""" + "\n".join(lines)
    if result["peak_gib"] is not None:
        text += f"\n\nDevice memory at most {result['peak_gib']:.1f} GiB."
    if few := result["few_points"]:
        shares = ", ".join(f"`{name}` {100 * share:.0f} %" for name, share in few["shares"].items())
        text += (
            f"\n\nOf every few networks, {few['kernels']} kernels kept the device busy for {few['busy_seconds']:.2f} "
        )
        text += f"of {few['seconds']:.2f} s: {shares}."
    if other:
        found = ", ".join(f"{name} {value:.5f}" for name, value in differences(result, other).items())
        text += f"\n\nLargest difference from the other version's values: {found}."
    return text + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="cifar100-paper")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--weights", type=Path, help="a file of weights; written first where it is not there")
    parser.add_argument("--rounds", type=int, default=0, help="of training before the weights are written")
    parser.add_argument("--examples", type=int, help="at most so many of each kind, e.g. on a CPU; without it all")
    parser.add_argument("--repeats", type=int, default=2, help="the least time counts")
    parser.add_argument("--ieee", action="store_true", help="multiply float32 in full, not in TF32")
    parser.add_argument("--whole", action="store_true", help="keep features in float32")
    parser.add_argument("--profile", action="store_true", help="trace the kernels of a few networks, on a GPU")
    parser.add_argument("--compare", type=Path, help="the JSON file of another version's result")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="that values may differ by")
    parser.add_argument("--out", type=Path, help="a Markdown file; a JSON file is written beside it")
    arguments = parser.parse_args()
    other = json.loads(arguments.compare.read_text()) if arguments.compare else None
    result = measure(arguments)
    text = to_markdown(result, other, shlex.join(["python", *sys.argv]))
    print(text)
    if arguments.out:
        write_result(arguments.out, text, result)
    if other and max(differences(result, other).values()) > arguments.tolerance:
        sys.exit(f"the two versions differ by more than {arguments.tolerance}")


if __name__ == "__main__":
    main()
