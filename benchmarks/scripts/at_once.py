"""Time the runs of several methods on one device: one after the other, then side by side, with and without MPS.

python benchmarks/scripts/at_once.py --set data.folder=FOLDER --out benchmarks/results/DATE-at-once.md

Every time is the wall time of a whole study in a process of its own, from its start to its report. One round of every
run beforehand fills the caches of compiled kernels.
"""

import argparse
import json
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import torch
from result_files import write_result

from fedfeast.machine import device_name, processor_and_cores
from fedfeast.recipes import Recipe
from fedfeast.runs import Run
from fedfeast.studies import StudyOptions, conclude_study, plan_study, train_study
from fedfeast.studies.arms import method_arm
from fedfeast.studies.catalogue.digits import DIGITS
from fedfeast.studies.report import write_study_report
from fedfeast.studies.running import SilentStudy, StudyPlan, folder_name
from fedfeast.studies.side_by_side.mps import CONTROL
from fedfeast.studies.study import RECIPES

METHODS = ("heterofl", "scalefl", "fiarse", "fjord")


class Speaking(SilentStudy):
    """Says how a device is shared."""

    def on_device_shared(self, sentence: str) -> None:
        print(sentence, flush=True)


def planned(folder: Path, arguments: argparse.Namespace, rounds: int) -> StudyPlan:
    """Return the study of the methods, an arm each."""
    methods = arguments.methods.split(",")
    study = replace(DIGITS, arms=lambda resolve: tuple(map(method_arm, methods)), datasets=tuple(RECIPES))
    return plan_study(study, folder, StudyOptions(arguments.dataset, rounds, settings=arguments.settings))


def run_study(arguments: argparse.Namespace) -> None:
    """Run the study in this process, as the command line would."""
    mps = {"auto": None, "on": True, "off": False}[arguments.mps]
    plan = planned(arguments.study, arguments, arguments.rounds)
    train_study(plan, Speaking(), arguments.at_once, mps)
    write_study_report(conclude_study(plan))


def time_study(folder: Path, arguments: argparse.Namespace, rounds: int, at_once: int, mps: str) -> dict[str, Any]:
    """Return the wall seconds of a study in a process of its own, and what it said of the device."""
    words = ["--methods", arguments.methods, "--dataset", arguments.dataset, "--rounds", str(rounds)]
    words += ["--study", str(folder / "study"), "--at-once", str(at_once), "--mps", mps]
    words += [word for setting in arguments.settings for word in ("--set", setting)]
    started = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - started
    if done.returncode:
        for log in (folder / "study" / "logs").glob("*.log"):
            print(f"{log.name}\n{log.read_text()[-2000:]}", file=sys.stderr)
        raise SystemExit(f"the study ended with exit code {done.returncode}")
    return {"at_once": at_once, "seconds": seconds, "device": done.stdout.strip() or "one after the other"}


def runs_in(folder: Path, recipes: dict[str, Recipe]) -> dict[str, Run]:
    """Return the finished runs by method."""
    return {method: Run.open(folder / "runs" / folder_name(recipe)) for method, recipe in recipes.items()}


def last_weights(run: Run) -> torch.Tensor:
    state, _ = run.folder.checkpoints.load_latest()
    assert state is not None
    return state.flat


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each way to run the methods, the first one in sequence."""
    ways = [(1, "auto"), (arguments.at_once, "off")]
    if torch.cuda.is_available() and shutil.which(CONTROL):
        ways.append((arguments.at_once, "on"))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        time_study(Path(place) / "warm", arguments, 1, 1, "auto")
        plan = planned(Path(place) / "plan", arguments, arguments.rounds)
        recipes = {run.recipe.method_name: run.recipe for run in plan.runs}
        sequence: dict[str, Run] = {}
        for number, (at_once, mps) in enumerate(ways):
            folder = Path(place) / str(number)
            row = time_study(folder, arguments, arguments.rounds, at_once, mps)
            runs = runs_in(folder, recipes)
            sequence = sequence or runs
            row["training_seconds"] = {method: run.summary["training_seconds"] for method, run in runs.items()}
            row["same_weights"] = all(
                torch.equal(last_weights(run), last_weights(sequence[method])) for method, run in runs.items()
            )
            row["of_sequence"] = row["seconds"] / (rows[0] if rows else row)["seconds"]
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def to_markdown(rows: list[dict[str, Any]], arguments: argparse.Namespace, command: str) -> str:
    methods = list(rows[0]["training_seconds"])
    device = device_name("cuda") if torch.cuda.is_available() else processor_and_cores()
    lines = "\n".join(
        f"| {row['device']} | {row['seconds']:.1f} | {row['of_sequence']:.2f} "
        f"| {' | '.join(format(row['training_seconds'][method], '.1f') for method in methods)} "
        f"| {'yes' if row['same_weights'] else 'no'} |"
        for row in rows
    )
    return f"""# Several runs at once on one device

{device}, torch {torch.__version__}, Python {platform.python_version()}, {date.today()}.
Command: `{command}`

{arguments.rounds} rounds of {RECIPES[arguments.dataset]} with each method. Wall time of the whole study, from the start
of its process to its report, compiled kernels cached; and each run's own seconds of training, which grow as runs share.

| | seconds | of the sequence | {" | ".join(f"{method}, s" for method in methods)} | weights as in sequence |
|---|---|---|{"---|" * len(methods)}---|
{lines}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cifar100", choices=RECIPES)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--out", type=Path, help="a Markdown file; a JSON file is written beside it")
    parser.add_argument("--study", type=Path, help=argparse.SUPPRESS)  # run one study in this process
    parser.add_argument("--mps", choices=("auto", "on", "off"), default="auto", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.study:
        run_study(arguments)
        return
    rows = measure(arguments)
    text = to_markdown(rows, arguments, shlex.join(["python", *sys.argv]))
    print(text)
    if arguments.out:
        write_result(arguments.out, text, rows)


if __name__ == "__main__":
    main()
