"""A study's curves as pictures, in the paper's manner."""

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedfeast.presentation.charts import ACCURACY, Chart, paper_series
from fedfeast.presentation.charts import macs_axis as chart_axis
from fedfeast.presentation.pictures import COLOURS, GREY, accuracy_limits, macs_axis, tidy
from fedfeast.studies.plots import Line, Plot

MARKERS = "osDv^Pp*XH"
MARKS = ("dot", "square", "triangle", "wedge")  # so that lines are told apart without their colours, too
CROWDED = 6  # lines; a longer legend stands beside the axes


def plot_figure(plot: Plot) -> Figure:
    """Return accuracy over MACs: a line an arm with its measured points, the spread over seeds, the paper's points."""
    crowded = len(plot.lines) > CROWDED
    figure = Figure(figsize=(8.4 if crowded else 7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    for line in plot.lines:
        _draw(axes, line, _colour_of(line, plot))
    if any(line.published for line in plot.lines):
        axes.plot([], [], "D", color="black", fillstyle="none", label="the paper's")
    axes.set_title(plot.title, loc="left", fontsize="medium")
    axes.set_ylabel("test accuracy (%)")
    axes.set_ylim(*accuracy_limits(axes))
    macs_axis(axes)
    tidy(axes)
    _mark_ranges(axes, plot)
    if crowded:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize="small")
    else:
        axes.legend(loc="best", framealpha=0.85, edgecolor="none", fontsize="small")
    return figure


def _draw(axes: Axes, line: Line, colour: str) -> None:
    macs = np.array([point.macs for point in line.points])
    accuracies = np.array([point.accuracy for point in line.points])
    marker = MARKERS[line.colour % len(MARKERS)]
    size = 3.5 if len(macs) > 20 else 5.5
    style = marker + ("--" if line.dashed else "-")
    axes.plot(macs, accuracies, style, color=colour, markersize=size, linewidth=1.5, label=line.label)
    if all(point.spread is not None for point in line.points):
        spreads = np.array([point.spread for point in line.points], dtype=float)
        axes.fill_between(macs, accuracies - spreads, accuracies + spreads, color=colour, alpha=0.15, linewidth=0)
    if line.published:
        at, values = zip(*line.published, strict=True)
        axes.plot(at, values, "D", color=colour, fillstyle="none", markersize=8, markeredgewidth=1.4)


def _colour_of(line: Line, plot: Plot) -> str:
    if not plot.graded:
        return COLOURS[line.colour % len(COLOURS)]
    last = max(one.colour for one in plot.lines)
    return to_hex(colormaps["viridis"](0.85 * line.colour / max(last, 1)))


def _mark_ranges(axes: Axes, plot: Plot) -> None:
    """Shade what lies below the compared range; mark the anchors."""
    drawn = [point.macs for line in plot.lines for point in line.points]
    left, right = min(drawn) / 1.15, max(drawn) * 1.15
    axes.set_xlim(left, right)
    if min(drawn) < 0.99 * plot.shared_from_macs:
        axes.axvspan(left, 0.98 * plot.shared_from_macs, color=GREY, alpha=0.18, linewidth=0)
    for macs in plot.anchors_macs:
        axes.axvline(macs, color=GREY, linestyle=":", linewidth=1, zorder=0)


def plot_charts(plot: Plot) -> list[Chart]:
    """Return a study's curves: an arm's measured points, the spread over seeds, the paper's points."""
    last = max(line.colour for line in plot.lines)
    series = []
    for line in plot.lines:
        colour = f"grade:{line.colour / max(last, 1):.3f}" if plot.graded else line.colour
        series.append(_arm(line, colour))
        if line.published:
            series.append(paper_series("", line.published, colour))
    if any(line.published for line in plot.lines):
        series.append(paper_series("the paper's", (), "ink"))
    drawn = [point.macs for line in plot.lines for point in line.points]
    shade = [{"to": 0.98 * plot.shared_from_macs}] if min(drawn) < 0.99 * plot.shared_from_macs else []
    return [
        {
            "kind": "xy",
            "height": 380,
            "x": chart_axis(),
            "y": ACCURACY,
            "series": series,
            "anchors": list(plot.anchors_macs),
            "shade": shade,
        }
    ]


def _arm(line: Line, colour: int | str) -> Chart:
    points = [[point.macs, point.accuracy, point.spread or 0] for point in line.points]
    look = {"dash": "7 4" if line.dashed else "", "mark": MARKS[line.colour % len(MARKS)]}
    return {"label": line.label, "colour": colour, "points": points, **look}
