"""Results as pictures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedfeast.methods.served_variants import format_macs
from fedfeast.runs import Run

COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a")


def draw_curves(runs: Sequence[Run], path: Path | str) -> None:
    """Draw the runs' accuracy-MACs curves over a histogram of the clients' budgets; the suffix picks the format."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    accuracy, clients = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    for run, colour in zip(runs, COLOURS * len(runs), strict=False):
        curve = run.curve
        accuracy.plot(
            [point.macs for point in curve.points],
            [100 * point.accuracy for point in curve.points],
            marker="o",
            markersize=4.5,
            linewidth=1.6,
            color=colour,
            label=f"{run.recipe.name}, {run.summary['method']}: population score {100 * run.population_score:.1f} %",
        )
    accuracy.set_ylabel("test accuracy (%)")
    accuracy.set_ylim(*_accuracy_limits(runs))
    accuracy.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, borderaxespad=0)
    _draw_budgets(clients, runs[0].folder.budgets_macs())
    clients.set_xscale("log")
    clients.xaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    clients.xaxis.set_major_formatter(FuncFormatter(lambda macs, _: format_macs(macs)))
    clients.xaxis.set_minor_formatter(NullFormatter())
    clients.set_xlabel("inference cost (MACs per example)")
    for axes in (accuracy, clients):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=160)


def _accuracy_limits(runs: Sequence[Run]) -> tuple[float, float]:
    """Return axis limits at least ten points apart, so that noise does not look like a trend."""
    values = [100 * point.accuracy for run in runs for point in run.curve.points]
    low, high = min(values), max(values)
    slack = max(1.0, (10 - (high - low)) / 2)
    top = min(high + slack, 101.0)
    return min(low - slack, top - 10), top


def _draw_budgets(axes: Axes, budgets_macs: np.ndarray) -> None:
    edges = np.geomspace(budgets_macs.min() * 0.9, budgets_macs.max() * 1.1, 30)
    axes.hist(budgets_macs, bins=edges.tolist(), color="#9aa5b1")
    axes.set_ylabel("clients\nby budget")
