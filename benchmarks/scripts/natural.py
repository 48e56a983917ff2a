"""The recipes speech, motion and text from start to curve, against ten minutes; with --study beside other ways.

A recipe whose data are not in $FEDFEAST_DATA is passed over and named. Exit code 1 where one takes longer.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from result_files import write_result

import fedfeast
from fedfeast.machine import processor_and_cores
from fedfeast.studies.running import folder_name
from fedfeast.studies.study import WITH_CLIENTS

MOST_SECONDS = 600.0


def timed(*words: str) -> float:
    """Run a command line to its end and return its wall clock, the start of Python included."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "fedfeast", *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def measure(recipe: str, runs: Path, rounds: int | None) -> dict[str, Any]:
    """Train and evaluate a recipe; return how long it took, and its curve on every test set."""
    given = {} if rounds is None else {"training.rounds": rounds}
    loaded = fedfeast.load_recipe(recipe, given)
    folder = runs / folder_name(loaded)  # where the study looks for it
    words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    training = timed("train", recipe, "--out", str(folder), *words)
    evaluating = timed("evaluate", str(folder))
    run = fedfeast.Run.open(folder)
    return {
        "recipe": recipe,
        "rounds": loaded.training.rounds,
        "train_seconds": round(training, 1),
        "evaluate_seconds": round(evaluating, 1),
        "metric": run.metric.title,
        "population_score": run.population_score,
        "division": run.summary["division"],
        "test_sets": {name: curve.rows() for name, curve in run.folder.test_sets().items()},
        "shown": {
            name: [(point.macs, run.metric.show(point.value, point.standard_error)) for point in curve.points]
            for name, curve in run.folder.test_sets().items()
        },
    }


def study(dataset: str, folder: Path, rounds: int | None) -> str:
    """Run the study of natural clients, the timed run reused; return its tables as Markdown."""
    options = fedfeast.StudyOptions(dataset, rounds, runs=folder / "runs")
    result = fedfeast.study("natural", folder / dataset, options)
    return "\n\n".join([*(table.to_markdown() for table in result.findings.tables), *result.findings.notes])


def describe(results: Sequence[dict[str, Any]]) -> str:
    """Return the times, and each recipe's sizes on its test sets, as Markdown."""
    lines = ["| recipe | rounds | train | evaluate | in all |", "|---|---|---|---|---|"]
    for one in results:
        whole = one["train_seconds"] + one["evaluate_seconds"]
        times = f"{one['train_seconds']:.0f} s | {one['evaluate_seconds']:.0f} s | **{whole:.0f} s**"
        lines.append(f"| `{one['recipe']}` | {one['rounds']} | {times} |")
    for one in results:
        sets = list(one["shown"])
        heads = " | ".join(f"{one['metric']}, {name}" for name in sets)
        lines += ["", f"`{one['recipe']}`, mean and standard error over clients:", "", f"| MACs | {heads} |"]
        lines.append("|" + "---|" * (len(sets) + 1))
        for cells in zip(*one["shown"].values(), strict=True):
            lines.append(f"| {cells[0][0]:,} | {' | '.join(value for _, value in cells)} |")
        if "study" in one:
            lines += ["", one["study"]]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", default="speech,motion,text")
    parser.add_argument("--rounds", type=int, help="fewer, for a trial of the script")
    parser.add_argument("--study", action="store_true", help="also train FedAvg and on pooled data")
    parser.add_argument("--folder", type=Path, help="keeps runs and study reports; a temporary one by default")
    parser.add_argument("--out", type=Path, help="a Markdown file to write; JSON goes beside it")
    arguments = parser.parse_args()
    states = {row["name"]: row["state"] for row in fedfeast.list_data()}
    load, results = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for dataset, recipe in WITH_CLIENTS.items():
            if recipe not in arguments.recipes.split(","):
                continue
            if states[dataset] in ("absent", "incomplete", "damaged"):
                print(f"{recipe} is passed over: {dataset} is not here (fedfeast data list)", flush=True)
                continue
            results.append(measure(recipe, folder / "runs", arguments.rounds))
            if arguments.study:
                results[-1]["study"] = study(dataset, folder, arguments.rounds)
    print(describe(results))
    if arguments.out is not None and results:
        rounds = [] if arguments.rounds is None else ["--rounds", str(arguments.rounds)]
        command = ["python benchmarks/scripts/natural.py", *rounds, *(["--study"] if arguments.study else [])]
        versions = f"Python {platform.python_version()}, torch {version('torch')}"
        head = f"""# Data with clients of their own, {date.today().isoformat()}

{processor_and_cores()}; {versions}; load average before it {load:.2f}.

`{" ".join(command)}`: the commands `fedfeast train` and `fedfeast evaluate`,
the start of Python included. The limit is {MOST_SECONDS:.0f} s a recipe.

"""
        write_result(arguments.out, head + describe(results) + "\n", results)
    late = [one["recipe"] for one in results if one["train_seconds"] + one["evaluate_seconds"] > MOST_SECONDS]
    if late:
        raise SystemExit(f"longer than {MOST_SECONDS:.0f} s: {', '.join(late)}")


if __name__ == "__main__":
    main()
