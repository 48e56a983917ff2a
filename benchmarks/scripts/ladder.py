"""A ladder of ten budgets from one CIFAR-size run: extracted, recalibrated on 1,000 images, exported to ONNX, checked.

The run is a short one: the network and the 56 variants of cifar100-paper after two rounds of two clients, on CIFAR-100
or, without its folder, on images of noise. Its evaluation is made up and gives every variant one per cent: a ladder
takes accuracies from there and measures none, and how long it takes depends on neither weights nor accuracies.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from result_files import write_result

from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.prepared import write_prepared
from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.federation import RoundOrder
from fedfeast.machine import processor_and_cores
from fedfeast.randomness import named_generator
from fedfeast.runs import Run
from fedfeast.runs.assembly import Federation
from fedfeast.runs.checkpoint import Best, TrainingState
from fedfeast.serving.exporting import ExportOptions
from fedfeast.serving.ladder import export_ladder
from fedfeast.serving.verification import verify

EXAMPLES = {"train": 12_000, "test": 1_000}
SHORT = {"data.validation_examples": 1000, "engine.device": "cpu"}
ROUNDS, CLIENTS = 2, 2


def make_data(folder: Path) -> None:
    """Write a data set of noise with 100 classes and colour images of 32 x 32."""
    generator = named_generator(0, "noise")
    labels = {split: np.arange(count) % 100 for split, count in EXAMPLES.items()}

    def images() -> Iterator[tuple[str, int, np.ndarray]]:
        for split, count in EXAMPLES.items():
            yield split, 0, generator.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)

    names = tuple(f"class {number}" for number in range(100))
    folder.mkdir()
    write_prepared(folder / "noise", Decoded(names, 3, 32, labels, images()), {"normalisation": None})


def make_run(folder: Path, threads: int, data: Path | None) -> Run:
    """Return a run of two rounds with a made-up evaluation."""
    if data is None:
        make_data(folder / "data")
    chosen = {"data.name": "noise" if data is None else "cifar100", "data.folder": str(data or folder / "data")}
    run = Run.create("cifar100-paper", folder / "run", {**SHORT, **chosen, "engine.threads": threads})
    federation, best = run.federation, trained(run.federation)
    state = federation.method.initial_state()
    run.folder.checkpoints.save(TrainingState(ROUNDS, best.flat, state, best))
    run.folder.write_clients(federation.client_table())
    points = federation.method.operating_points()
    curve = Curve(tuple(CurvePoint(point.name, point.macs, point.parameters, 0.01) for point in points))
    summary = {
        "finished_rounds": ROUNDS,
        "best_round": ROUNDS,
        "validation_curve": [asdict(one) for one in curve.points],
    }
    run.folder.write_summary(summary, curve)
    return run


def trained(federation: Federation) -> Best:
    """Return the weights after the rounds."""
    method, engine, flat = federation.method, federation.engine(), federation.initial_weights()
    clients = sorted((federation.clients[index] for index in federation.participants), key=lambda one: one.budget_macs)
    cohort = clients[:CLIENTS]  # the least train in seconds
    for round_index in range(ROUNDS):
        planned, _ = method.plan_round(method.initial_state(), flat, cohort, round_index, named_generator(0, "plan"))
        flat = engine.run_round(RoundOrder(flat, planned, round_index, federation.recipe.training.learning_rate)).flat
    return Best(ROUNDS, 0.01, flat)


def measure(rungs: int, threads: int, options: ExportOptions, data: Path | None) -> dict[str, Any]:
    """Export a ladder from a freshly opened run; return what it took, rung by rung."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_run(folder, threads, data)
        load = os.getloadavg()[0]
        marks, used, manifests = [time.perf_counter()], time.process_time(), []

        def note(done: int, total: int, manifest: dict[str, Any]) -> None:
            marks.append(time.perf_counter())
            manifests.append(manifest)
            print(f"{done}/{total} {manifest['name']} {marks[-1] - marks[-2]:.1f} s", flush=True)

        export_ladder(folder / "run", folder / "ladder", rungs, options, note)
        seconds, processor_seconds = time.perf_counter() - marks[0], time.process_time() - used
        started = time.perf_counter()
        verify(folder / "ladder")
        verifying = time.perf_counter() - started
    return {
        "date": date.today().isoformat(),
        "hardware": processor_and_cores(),
        "threads": threads,
        "versions": {name: version(name) for name in ("torch", "onnx", "onnxruntime")},
        "python": platform.python_version(),
        "load_before": round(load, 2),
        "images": "noise" if data is None else "CIFAR-100",
        "formats": list(options.formats),
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor_seconds, 1),
        "verify_seconds": round(verifying, 1),
        "rungs": [
            {
                "name": manifest["name"],
                "macs": manifest["macs"],
                "parameters": manifest["parameters"],
                "seconds": round(after - before, 2),
                "largest_difference": manifest["exports"]["model.onnx"]["largest_difference"],
            }
            for manifest, before, after in zip(manifests, marks[:-1], marks[1:], strict=True)
        ],
    }


def write(result: dict[str, Any], command: str, file: Path) -> None:
    """Write the result as Markdown, and as JSON beside it."""
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    rows = "\n".join(
        f"| {rung['name']} | {rung['parameters']:,} | {rung['seconds']:.1f} | {rung['largest_difference']:.1e} |"
        for rung in result["rungs"]
    )
    text = f"""# A ladder of {len(result["rungs"])} from one CIFAR-size run, {result["date"]}

{result["hardware"]}; Python {result["python"]}, {versions}; {result["threads"]} threads; load average before it
{result["load_before"]}.

`{command}`: from the folder of a run of `cifar100-paper` (two rounds of two
clients, {result["images"]}) to a ladder on the disk. Every network is recalibrated on 1,000 images, written as
{" and ".join(result["formats"])} and compared with torch on 64 images; accuracies come from the run's evaluation.

| MACs | parameters | seconds | largest difference from torch |
|---|---|---|---|
{rows}
| all, loading and writing included | | **{result["seconds"]:.1f}** | |

The ladder used {result["processor_seconds"]:.0f} s of processor time. `fedfeast verify` of all of it took
{result["verify_seconds"]:.1f} s.
"""
    write_result(file, text, result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rungs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--data-folder", type=Path, help="where CIFAR-100 lies; images of noise without it")
    parser.add_argument("--out", type=Path, help="a Markdown file to write; JSON goes beside it")
    arguments = parser.parse_args()
    options = ExportOptions(("onnx", "int8") if arguments.int8 else ("onnx",))
    result = measure(arguments.rungs, arguments.threads, options, arguments.data_folder)
    print(json.dumps(result, indent=2))
    if arguments.out is not None:
        given = f"--rungs {arguments.rungs} --threads {arguments.threads}{' --int8' if arguments.int8 else ''}"
        given += " --data-folder DATA" if arguments.data_folder else ""
        write(result, f"python benchmarks/scripts/ladder.py {given}", arguments.out)


if __name__ == "__main__":
    main()
