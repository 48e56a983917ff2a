"""Results as pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedfeast.evaluation.published import ANCHORS_MACS, ROUNDS, TRAINING_RULES
from fedfeast.presentation.axes import log_axis
from fedfeast.presentation.axes import tidy as tidy
from fedfeast.runs import Run
from fedfeast.units import format_macs

COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#64473a", "#cb912f", "#2f9e8f", "#5d6b7a", "#d44c47")
GREY = "#9aa5b1"


def draw_curves(runs: Sequence[Run], path: Path | str) -> None:
    """Draw the runs' accuracy-MACs curves over the clients' budgets; the suffix picks the format."""
    curve_figure(runs).savefig(path, dpi=160)


def draw_search(found: Sequence[Any], path: Path | str) -> None:
    """Draw the fitness and the shape of searched variants; the suffix picks the format."""
    search_figure(found).savefig(path, dpi=160)


def draw_latency(measured: Mapping[str, Any], path: Path | str) -> None:
    """Draw accuracy against measured latency; the suffix picks the format."""
    latency_figure(measured).savefig(path, dpi=160)


def curve_figure(runs: Sequence[Run]) -> Figure:
    """Return the accuracy-MACs curves over a histogram of the clients' budgets."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    accuracy, clients = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    for run, colour in _coloured(runs):
        points = run.curve.points
        accuracy.plot(
            [point.macs for point in points],
            [100 * point.accuracy for point in points],
            marker="o",
            markersize=4.5,
            linewidth=1.6,
            color=colour,
            label=f"{label_of(run)}: population score {100 * run.population_score:.1f} %",
        )
    if all(run.recipe.data.name == "cifar100" for run in runs):
        values, label = TRAINING_RULES["cifar100"]["full"], f"the paper's FEAST, {ROUNDS} rounds"
        accuracy.plot(ANCHORS_MACS, values, "D", color="black", fillstyle="none", label=label)
    accuracy.set_ylabel("test accuracy (%)")
    accuracy.set_ylim(*accuracy_limits(accuracy))
    accuracy.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, borderaxespad=0)
    _draw_budgets(clients, runs[0].folder.budgets_macs())
    macs_axis(clients)
    tidy(accuracy, clients)
    return figure


def history_figure(runs: Sequence[Run]) -> Figure:
    """Return training loss by role and validation score over the rounds."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    loss, score = figure.subplots(2, 1, sharex=True)
    styles = {"teacher": "-", "student": "--", "supervised": ":"}
    for run, colour in _coloured(runs):
        rows = run.folder.metrics()
        for role in sorted({role for row in rows for role in row["losses"]}):
            chosen = [(row["round"], row["losses"][role]) for row in rows if role in row["losses"]]
            rounds, values = zip(*chosen, strict=True)
            loss.plot(
                rounds, values, styles.get(role, "-."), color=colour, linewidth=1, label=f"{label_of(run)}, {role}"
            )
        validated = [(row["round"], 100 * row["validation_score"]) for row in rows if "validation_score" in row]
        if validated:
            rounds, values = zip(*validated, strict=True)
            score.plot(rounds, values, marker="o", markersize=3.5, color=colour, label=label_of(run))
    loss.set_ylabel("mean training loss")
    loss.legend(frameon=False, fontsize="small")
    score.set_ylabel("validation\npopulation score (%)")
    score.set_xlabel("round")
    tidy(loss, score)
    return figure


def clients_figure(run: Run) -> Figure:
    """Return every client's data share over its budget, as asked for and as it came out."""
    table = run.folder.clients()
    budgets = np.array([float(row["budget_macs"]) for row in table])
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = figure.subplots()
    realized = [100 * float(row["realized_share"]) for row in table]
    order = np.argsort(budgets)
    target = np.array([100 * float(row["target_share"]) for row in table])
    axes.plot(budgets[order], target[order], color=GREY, linewidth=1.5, label="target share")
    axes.scatter(budgets, realized, s=18, color=COLOURS[0], alpha=0.75, label="realized share")
    axes.set_ylabel("share of all examples (%)")
    axes.legend(frameon=False)
    macs_axis(axes, "client's budget (MACs per example)")
    tidy(axes)
    return figure


def coverage_figure(coverage: Sequence[Mapping[str, Any]]) -> Figure:
    """Return which part of the tensor is reached by how much data, by stage and block."""
    stages = list(dict.fromkeys(row["stage"] for row in coverage))
    deepest = max(row["block"] for row in coverage) + 1
    shares = np.full((len(stages), deepest), np.nan)
    for row in coverage:
        shares[stages.index(row["stage"]), row["block"]] = 100 * row["data_share"]
    figure = Figure(figsize=(7.2, 0.9 + 0.55 * len(stages)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, aspect="auto", cmap="YlGnBu", vmin=0, vmax=100)
    for (stage, block), share in np.ndenumerate(shares):
        if not np.isnan(share):
            axes.text(block, stage, f"{share:.0f}", ha="center", va="center", color="white" if share > 55 else "black")
    axes.set_yticks(range(len(stages)), stages)
    axes.set_xticks(range(deepest))
    axes.set_xlabel("block")
    figure.colorbar(image, label="data that reach it (%)")
    return figure


def search_figure(found: Sequence[Any]) -> Figure:
    """Return the fitness of searched variants and the shape they take, over their MACs."""
    macs = [one.macs for one in found]
    figure = Figure(figsize=(7.2, 5.4), layout="constrained")
    fitness, depth, width = figure.subplots(3, 1, sharex=True, height_ratios=(2, 1, 1))
    fitness.plot(macs, [one.fitness for one in found], "o-", markersize=3.5, linewidth=1, color=COLOURS[0])
    fitness.set_ylabel("fitness")
    for stage in range(len(found[0].architecture.depths)):
        colour, name = COLOURS[stage % len(COLOURS)], f"stage {stage + 1}"
        depth.plot(macs, [one.architecture.depths[stage] for one in found], color=colour, label=name)
        width.plot(macs, [one.architecture.width_indices[stage + 1] for one in found], color=colour)
    depth.set_ylabel("extra blocks")
    width.set_ylabel("width index")
    depth.legend(frameon=False, ncols=4, fontsize="small", loc="lower right")
    macs_axis(width)
    tidy(fitness, depth, width)
    return figure


def latency_figure(measured: Mapping[str, Any]) -> Figure:
    """Return accuracy against measured latency; a line joins the networks that no faster one matches."""
    points = sorted(measured["points"], key=lambda point: (point["median_ms"], -point["accuracy"]))
    best = [point for place, point in enumerate(points) if point["accuracy"] > _highest(points[:place])]
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(*_by_latency(points), "o", markersize=4.5, color=GREY, label="served networks, named by their MACs")
    label = "more accurate than all faster ones"
    axes.plot(*_by_latency(best), "o-", markersize=4.5, linewidth=1.2, color=COLOURS[0], label=label)
    for position in np.unique(np.linspace(0, len(best) - 1, min(8, len(best))).round().astype(int)):
        place = (best[position]["median_ms"], 100 * best[position]["accuracy"])
        axes.annotate(best[position]["name"], place, (4, -11), textcoords="offset points", fontsize="small")
    axes.set_ylim(*accuracy_limits(axes))
    where = f"{measured['device']}, {measured['threads']} threads"
    log_axis(axes, f"latency of one image (ms), {where}", lambda milliseconds: f"{milliseconds:g}")
    axes.set_xlim(points[0]["median_ms"] / 1.6, points[-1]["median_ms"] * 1.6)  # room for names, and for equal times
    axes.set_ylabel("test accuracy (%)")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, borderaxespad=0, ncols=2)
    tidy(axes)
    return figure


def _highest(points: Sequence[Mapping[str, Any]]) -> float:
    return max((point["accuracy"] for point in points), default=-1.0)


def _by_latency(points: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    return [point["median_ms"] for point in points], [100 * point["accuracy"] for point in points]


def label_of(run: Run) -> str:
    """Return what a run is called in a legend."""
    return f"{run.folder.path.name}, {run.recipe.method_name}"


def _coloured(runs: Sequence[Run]) -> list[tuple[Run, str]]:
    return [(run, COLOURS[position % len(COLOURS)]) for position, run in enumerate(runs)]


def accuracy_limits(axes: Axes) -> tuple[float, float]:
    """Return limits at least ten points apart, so that noise does not look like a trend."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()])
    low, high = float(values.min()), float(values.max())
    slack = max(1.0, (10 - (high - low)) / 2)
    top = min(high + slack, 101.0)
    return min(low - slack, top - 10), top


def _draw_budgets(axes: Axes, budgets_macs: np.ndarray) -> None:
    edges = np.geomspace(budgets_macs.min() * 0.9, budgets_macs.max() * 1.1, 30)
    axes.hist(budgets_macs, bins=edges.tolist(), color=GREY)
    axes.set_ylabel("clients\nby budget")


def macs_axis(axes: Axes, label: str = "inference cost (MACs per example)") -> None:
    """Make the horizontal axis one of MACs, logarithmic."""
    log_axis(axes, label, format_macs)
