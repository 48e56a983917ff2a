"""Digits with clients that lie: what each rule of aggregation keeps of the population score.

python benchmarks/hostile_clients.py --seeds 0,1,2 --out benchmarks/DATE-hostile-clients.md
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from fedfeast.app.report import write_report
from fedfeast.runs import Run

RULES = ("mean", "clipped-mean", "trimmed-mean", "median")


def cases(share: float) -> dict[str, Mapping[str, Any]]:
    """Every rule with hostile clients, the plain mean first, after the clean run that all are measured against."""
    hostile = {f"{rule}, hostile": {"aggregation.rule": rule, "hostile.share": share} for rule in RULES}
    return {"mean, clean": {}, **hostile}


def by_budget(run: Run) -> str:
    """Return the accuracies of all operating points, least MACs first."""
    return " ".join(f"{100 * point.accuracy:.0f}" for point in run.curve.points)


def train_all(folder: Path, seeds: Sequence[int], share: float, rounds: int) -> list[tuple[str, int, Run]]:
    runs = []
    for seed in seeds:
        for name, settings in cases(share).items():
            out = folder / f"{name.replace(', ', '-')}-{seed}"
            run = Run.create("digits", out, {"seed": seed, "training.rounds": rounds, **settings}).train()
            print(f"seed {seed}  {name:<24} {100 * run.population_score:6.2f} %  {by_budget(run)}", flush=True)
            runs.append((name, seed, run))
    return runs


def table(runs: Sequence[tuple[str, int, Run]], seeds: Sequence[int]) -> list[str]:
    scores = {(name, seed): 100 * run.population_score for name, seed, run in runs}
    names = list(dict.fromkeys(name for name, _, _ in runs))
    lines = [
        "| rule | " + " | ".join(f"seed {seed}" for seed in seeds) + " | mean | worst loss | seconds a round |",
        "|---" * (len(seeds) + 4) + "|",
    ]
    for name in names:
        own = [scores[name, seed] for seed in seeds]
        loss = max(scores[names[0], seed] - scores[name, seed] for seed in seeds)
        seconds = mean(
            run.summary["training_seconds"] / run.summary["finished_rounds"] for one, _, run in runs if one == name
        )
        cells = " | ".join(f"{score:.2f}" for score in own)
        lines.append(f"| {name} | {cells} | {mean(own):.2f} | {loss:.2f} | {seconds:.2f} |")
    first = [(name, run) for name, seed, run in runs if seed == seeds[0]]
    macs = " | ".join(f"{point.macs / 1e6:.2f}M" for point in first[0][1].curve.points)
    points = len(first[0][1].curve.points)
    lines += ["", f"Accuracy by budget, seed {seeds[0]}:", "", f"| rule | {macs} |", "|---" * (points + 1) + "|"]
    for name, run in first:
        cells = " | ".join(f"{100 * point.accuracy:.1f}" for point in run.curve.points)
        lines.append(f"| {name} | {cells} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path, help="a file for the tables")
    parser.add_argument("--report", type=Path, help="a folder for the first seed's report")
    options = parser.parse_args()
    seeds = [int(one) for one in options.seeds.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        runs = train_all(Path(folder), seeds, options.share, options.rounds)
        lines = table(runs, seeds)
        if options.report is not None:
            write_report([run for _, seed, run in runs if seed == seeds[0]], options.report / "report.html")
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
