"""Keep what a long run came to under benchmarks/runs, and set kept runs side by side.

python benchmarks/scripts/long_runs.py keep RUN NAME --command "fedfeast train ..."
python benchmarks/scripts/long_runs.py table [NAME ...]
python benchmarks/scripts/long_runs.py draw PICTURE NAME [NAME ...]

A run folder is hundreds of megabytes of weights; what stays of it is the recipe, the command, the machine, the test
curve and the validated rounds.
"""

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from fedfeast.data.tasks import ACCURACY
from fedfeast.evaluation.published import ANCHORS_MACS, POPULATION_SCORES, ROUNDS, TRAINING_RULES
from fedfeast.planning.outline import outline
from fedfeast.presentation.chart import Chart, Point, Series, macs_axis, mark_of, metric_axis, published_series
from fedfeast.presentation.pictures import draw_charts
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.studies.results import anchors_of

KEPT = Path(__file__).parents[1] / "runs"
VALIDATED = ("round", "validation_score", "validation_sizes", "losses")


@dataclass(frozen=True)
class LongRun:
    """A kept run."""

    folder: Path

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that is said of it but its recipe and its rounds."""
        facts: dict[str, Any] = json.loads((self.folder / "run.json").read_text())
        return facts

    @property
    def curve(self) -> list[tuple[float, float]]:
        """The price in MACs and the test accuracy in % of every network, least first."""
        return [(point["price"], 100 * point["accuracy"]) for point in self.facts["curve"]]

    @property
    def at_anchors(self) -> list[float | None]:
        """The accuracy of the largest network at or below each of the paper's anchors; None where there is none.

        Only of runs whose cache has these anchors, on CIFAR-100.
        """
        prices = [variant.price for variant in outline(load_recipe(str(self.folder / "recipe.toml"))).cache]
        budgets = [anchor.budget_macs for anchor in anchors_of(prices)]
        assert len(budgets) == len(ANCHORS_MACS)
        return [max((point for point in self.curve if point[0] <= most), default=(0, None))[1] for most in budgets]

    @property
    def greatest_dip(self) -> float:
        """By how many points at most a network is worse than the next smaller one."""
        return max((one - next_one for (_, one), (_, next_one) in pairwise(self.curve)), default=0.0)

    def row(self) -> str:
        """Return the run as a line of the table."""
        facts = self.facts
        cells = [f"[{self.folder.name}]({self.folder.name}/run.json)", facts["method"], f"{facts['rounds']}"]
        cells += ["none" if value is None else f"{value:.2f}" for value in self.at_anchors]
        cells += [f"{100 * facts[name]:.2f}" for name in ("population_score", "population_score_best")]
        cells += [f"{self.greatest_dip:.2f}", f"{facts['seconds_a_round']:.3f}", f"{facts['training_seconds']:,.0f}"]
        return f"| {' | '.join(cells)} |"


def keep(run: Run, folder: Path, command: str) -> None:
    """Write what a measured run came to into a new folder."""
    summary, rows = run.summary, run.folder.metrics()
    rounds = [row["seconds"] - row.get("setup_seconds", 0.0) for row in rows]
    machine = json.loads((run.folder.path / "environment.json").read_text())
    facts = {
        "command": command,
        "date": date.fromtimestamp((run.folder.path / "summary.json").stat().st_mtime).isoformat(),
        "machine": {name: told for name, told in machine.items() if name != "platform"},
        **{name: summary[name] for name in ("recipe", "method", "best_round", "validation_score")},
        **{name: summary[name] for name in ("population_score", "population_score_best", "served_share")},
        "rounds": summary["finished_rounds"],
        "training_seconds": summary["training_seconds"],
        "seconds_a_round": round(median(rounds), 4),
        "setup_seconds": round(sum(row.get("setup_seconds", 0.0) for row in rows), 1),
        "traffic": summary["traffic"],
        "fairness": summary["fairness"],
        "curve": [
            {
                "name": point.name,
                "macs": point.macs,
                "price": point.price,
                "parameters": point.parameters,
                "accuracy": point.value,
            }
            for point in run.curve.points
        ],
    }
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(facts, indent=1) + "\n")
    recipe = (run.folder.path / "recipe.toml").read_text()
    (folder / "recipe.toml").write_text(re.sub(r'^folder = ".*"$', 'folder = "DATA"', recipe, flags=re.MULTILINE))
    with (folder / "validated.jsonl").open("w") as file:
        for row in rows:
            if "validation_score" in row:
                file.write(json.dumps({name: row[name] for name in VALIDATED if name in row}) + "\n")


def table(runs: Sequence[LongRun]) -> str:
    """Return kept runs, and the paper's FEAST, as a Markdown table."""
    anchors = " | ".join(f"{macs / 1e6:.0f}M" for macs in ANCHORS_MACS)
    lines = [
        f"| run | method | rounds | {anchors} | population, by largest | by best | greatest dip | s a round | s |",
        "|---" * 13 + "|",
        f"| *the paper* | feast | {ROUNDS} | {' | '.join(map(str, TRAINING_RULES['cifar100']['full']))} | |"
        f" {POPULATION_SCORES['cifar100']['feast']} | | | |",
    ]
    return "\n".join([*lines, *(run.row() for run in runs)])


def draw(runs: Sequence[LongRun], picture: Path) -> None:
    """Draw the curves of kept runs over the paper's anchors."""
    series = []
    for number, run in enumerate(runs):
        points = tuple(Point(price, accuracy) for price, accuracy in run.curve)
        label = f"{run.facts['recipe']}, {run.facts['method']}"
        series.append(Series(label, points, number, mark_of(number)))
    published = list(zip(ANCHORS_MACS, TRAINING_RULES["cifar100"]["full"], strict=True))
    series.append(published_series(f"the paper's FEAST, {ROUNDS} rounds", published, "ink"))
    chart = Chart(macs_axis(), metric_axis(ACCURACY), tuple(series), anchors=ANCHORS_MACS, height=380)
    draw_charts([chart], picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    keeping = commands.add_parser("keep")
    keeping.add_argument("run", type=Path)
    keeping.add_argument("name", help="with its date, e.g. 2026-11-16-cifar100-authors")
    keeping.add_argument("--command", dest="typed", required=True, help="what was typed to train it")
    listing = commands.add_parser("table")
    listing.add_argument("names", nargs="*")
    drawing = commands.add_parser("draw")
    drawing.add_argument("picture", type=Path)
    drawing.add_argument("names", nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "keep":
        keep(Run.open(arguments.run), KEPT / arguments.name, arguments.typed)
        print(f"kept in {KEPT / arguments.name}")
        return
    runs = [LongRun(KEPT / name) for name in arguments.names or sorted(path.name for path in KEPT.iterdir())]
    if arguments.command == "table":
        print(table(runs))
    else:
        draw(runs, arguments.picture)


if __name__ == "__main__":
    main()
