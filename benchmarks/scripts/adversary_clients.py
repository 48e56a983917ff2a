"""Digits with clients that lie: what each rule of aggregation keeps of the population score.

python benchmarks/scripts/adversary_clients.py --seeds 0,1,2 --out benchmarks/results/DATE-adversary-clients.md
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from fedfeast.presentation.report import write_report
from fedfeast.randomness import named_generator
from fedfeast.runs import Run

RULES = ("mean", "clipped-mean", "trimmed-mean", "median")
CLEAN = "mean, clean"
Runs = Mapping[tuple[str, int], Run]  # case and seed


def cases(share: float, enlargement: float) -> dict[str, Mapping[str, Any]]:
    """Every rule with lying clients, the plain mean first, after the clean run that all are measured against."""
    lies = {"adversary.share": share, "adversary.enlargement": enlargement}
    return {CLEAN: {}, **{f"{rule}, adversary": {"aggregation.rule": rule, **lies} for rule in RULES}}


def train(out: Path, settings: Mapping[str, Any]) -> Path:
    run = Run.create("digits", out, settings).train()
    print(f"{out.name:<24} {100 * run.population_score:6.2f} %", flush=True)
    return out


def train_all(folder: Path, seeds: Sequence[int], rounds: int, lies: tuple[float, float], processes: int) -> Runs:
    with ProcessPoolExecutor(processes) as pool:
        waiting = {
            (name, seed): pool.submit(
                train,
                folder / f"{name.replace(', ', '-')}-{seed}",
                {"seed": seed, "training.rounds": rounds, **settings},
            )
            for seed in seeds
            for name, settings in cases(*lies).items()
        }
        return {key: Run.open(one.result()) for key, one in waiting.items()}


def who_lies(run: Run) -> str:
    """Say what the lying clients of a run hold, and how often they are in the majority."""
    federation = run.federation
    adversary = federation.update_policy().adversary
    assert adversary is not None
    liars = adversary.clients
    examples = {one.index: one.num_examples for one in federation.clients if one.index in federation.participants}
    held = sum(examples[index] for index in liars) / sum(examples.values())
    flat, method = federation.initial_weights(), federation.method
    reached, few, lost = 0, 0, 0
    for row in run.folder.metrics():
        cohort = [federation.clients[index] for index in row["clients"]]
        planned, _ = method.plan_round(
            method.initial_state(), flat, cohort, row["round"] - 1, named_generator(federation.recipe.seed, "plan")
        )
        everybody, liars_there = torch.zeros_like(flat), torch.zeros_like(flat)
        for assignment in planned:
            assignment.slice_map.increment_(everybody, 1.0)
            if assignment.client.index in liars:
                assignment.slice_map.increment_(liars_there, 1.0)
        reached += int((everybody > 0).sum())
        few += int(((everybody > 0) & (everybody < 3)).sum())
        lost += int(((everybody > 0) & (2 * liars_there >= everybody)).sum())
    return f"{100 * held:.0f} % | {100 * few / reached:.0f} % | {100 * lost / reached:.0f} %"


def score_table(runs: Runs, seeds: Sequence[int]) -> list[str]:
    lines = [
        "| rule | " + " | ".join(f"seed {seed}" for seed in seeds) + " | mean | worst loss | seconds a round |",
        "|---" * (len(seeds) + 4) + "|",
    ]
    for name in dict.fromkeys(name for name, _ in runs):
        own = [100 * runs[name, seed].population_score for seed in seeds]
        clean = [100 * runs[CLEAN, seed].population_score for seed in seeds]
        loss = max(before - after for before, after in zip(clean, own, strict=True))
        summaries = [runs[name, seed].summary for seed in seeds]
        seconds = mean(one["training_seconds"] / one["finished_rounds"] for one in summaries)
        cells = " | ".join(f"{score:.2f}" for score in own)
        lines.append(f"| {name} | {cells} | {mean(own):.2f} | {loss:.2f} | {seconds:.2f} |")
    return lines


def liar_table(runs: Runs, seeds: Sequence[int]) -> list[str]:
    lines = [
        "| seed | data that liars hold | positions and rounds with one or two contributors | with half or more liars |",
        "|---" * 4 + "|",
    ]
    return lines + [f"| {seed} | {who_lies(runs['median, adversary', seed])} |" for seed in seeds]


def budget_table(runs: Runs, seed: int) -> list[str]:
    own = {name: run.curve.points for (name, one), run in runs.items() if one == seed}
    points = own[CLEAN]
    macs = " | ".join(f"{point.macs / 1e6:.2f}M" for point in points)
    lines = [f"Accuracy by budget, seed {seed}:", "", f"| rule | {macs} |", "|---" * (len(points) + 1) + "|"]
    for name, measured in own.items():
        lines.append(f"| {name} | " + " | ".join(f"{100 * point.accuracy:.1f}" for point in measured) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--enlargement", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--runs", type=Path, help="a folder to keep the runs in, or to go on from")
    parser.add_argument("--out", type=Path, help="a file for the tables")
    parser.add_argument("--report", type=Path, help="a folder for the first seed's report")
    options = parser.parse_args()
    seeds = [int(one) for one in options.seeds.split(",")]
    with tempfile.TemporaryDirectory() as passing:
        lies = options.share, options.enlargement
        runs = train_all(options.runs or Path(passing), seeds, options.rounds, lies, options.processes)
        lines = [*score_table(runs, seeds), "", *liar_table(runs, seeds)]
        for seed in seeds:
            lines += ["", *budget_table(runs, seed)]
        if options.report is not None:
            first = [run for (_, seed), run in runs.items() if seed == seeds[0]]
            write_report(first, options.report / "report.html")
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
