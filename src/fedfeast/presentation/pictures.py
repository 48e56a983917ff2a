"""Charts drawn into files, as charts.js draws them on a page."""

import io
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from fedfeast.presentation.chart import AnyChart, Axis, Chart, HeatMap, Mark, Series
from fedfeast.presentation.note_places import place_notes
from fedfeast.presentation.palette import cell_colour, colour_of
from fedfeast.presentation.run_charts import curve_charts, latency_charts, search_charts
from fedfeast.runs import Run
from fedfeast.units import format_macs

WIDTH, PLOT_WIDTH = 720, 650  # pixels, as a page would show it: of all, and about that within the axes
AROUND = 60  # pixels above and below the axes: a legend, numbers and what they mean
PIXELS_PER_INCH = 100
PIXEL = 72 / PIXELS_PER_INCH  # in points, matplotlib's unit of strokes and letters
MARK_GAP = 14  # pixels between the marks of one line
TICK_GAP = 46  # between numbers of a logarithmic axis
Marker = str | tuple[tuple[float, float], ...]  # matplotlib's name, or corners
MARKERS: Mapping[Mark, tuple[Marker, float]] = {  # and how much larger than a dot
    "dot": ("o", 1),
    "square": ("s", 1),
    "triangle": ("^", 1.15),
    "wedge": ("v", 1.15),
    "plus": ("P", 1.4),
    "star": ("*", 1.65),
    "cross": ("X", 1.4),
    "pentagon": ("p", 1.2),
    "leftward": ("<", 1.15),
    "rightward": (">", 1.15),
    "hourglass": (((-1.1, 1.25), (1.1, 1.25), (-1.1, -1.25), (1.1, -1.25)), 1.25),
    "bow": (((-1.25, 1.1), (-1.25, -1.1), (1.25, 1.1), (1.25, -1.1)), 1.25),
    "bar": (((-0.6, 1.45), (0.6, 1.45), (0.6, -1.45), (-0.6, -1.45)), 1.45),
    "beam": (((-1.45, 0.6), (1.45, 0.6), (1.45, -0.6), (-1.45, -0.6)), 1.45),
    "chevron": (((0, 1.2), (1.4, -0.3), (1.4, -1.4), (0, 0.1), (-1.4, -1.4), (-1.4, -0.3)), 1.4),
    "hexagon": ("h", 1.2),
    "arch": (((-1.3, -0.9), (-1.2, -0.1), (-0.7, 0.7), (0, 1), (0.7, 0.7), (1.2, -0.1), (1.3, -0.9)), 1.3),
    "diamond": ("D", 1),
    "ring": ("o", 1.6),
    "none": ("", 1),
}
OPEN = ("diamond", "ring")
_DRAWING = threading.RLock()  # matplotlib's settings are the process's


def draw_curves(runs: Sequence[Run], path: Path | str) -> None:
    """Draw the runs' curves over MACs and the clients' budgets; the suffix picks the format."""
    draw_charts(curve_charts(runs), path)


def draw_search(found: Sequence[Any], path: Path | str) -> None:
    """Draw the fitness and the shapes of searched variants; the suffix picks the format."""
    draw_charts(search_charts(found), path)


def draw_latency(measured: Mapping[str, Any], path: Path | str) -> None:
    """Draw the metric against measured latency; the suffix picks the format."""
    draw_charts(latency_charts(measured), path)


def draw_charts(charts: Sequence[AnyChart], path: Path | str, title: str = "") -> None:
    """Draw charts one above the other into a file; the suffix picks the format."""
    with _settings():
        metadata = {"Date": None} if Path(path).suffix == ".svg" else None
        figure_of(charts, title).savefig(path, dpi=160, metadata=metadata)


def svg_of(charts: Sequence[AnyChart]) -> str:
    """Return charts one above the other as SVG: the same charts, the same text."""
    text = io.StringIO()
    with _settings():
        figure_of(charts).savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def figure_of(charts: Sequence[AnyChart], title: str = "") -> Figure:
    """Return charts one above the other; those over the same axis have its numbers below the last one only."""
    with _settings():
        heights = [chart.height for chart in charts]
        size = (WIDTH / PIXELS_PER_INCH, (sum(heights) + (30 if title else 0)) / PIXELS_PER_INCH)
        figure = Figure(figsize=size, layout="constrained")
        all_axes = figure.subplots(len(charts), 1, height_ratios=heights, squeeze=False)[:, 0]
        for place, (chart, axes) in enumerate(zip(charts, all_axes, strict=True)):
            if isinstance(chart, HeatMap):
                _draw_heat_map(axes, chart)
                continue
            _draw_chart(axes, chart)
            following = charts[place + 1] if place + 1 < len(charts) else None
            if isinstance(following, Chart) and following.x == chart.x:
                axes.set_xlabel("")
                axes.tick_params(labelbottom=False)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize="large", fontweight="bold", color=colour_of("ink"))
        figure.align_ylabels()
        return figure


@contextmanager
def _settings() -> Iterator[None]:
    ink, soft, grey, line = map(colour_of, ("ink", "soft", "grey", "line"))
    settings: dict[Any, Any] = {
        "svg.hashsalt": "fedfeast",  # the same chart, the same bytes
        "text.parse_math": False,  # a run may be called $x$
        "font.size": 13 * PIXEL,
        "text.color": soft,
        "axes.labelcolor": ink,
        "axes.edgecolor": grey,
        "axes.spines.left": False,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": line,
        "grid.linewidth": PIXEL,
        "xtick.color": grey,
        "ytick.color": grey,
        "xtick.labelcolor": soft,
        "ytick.labelcolor": soft,
        "ytick.major.size": 0,
        "legend.frameon": False,
        "legend.borderaxespad": 0.2,
        "legend.handlelength": 2.4,
    }
    with _DRAWING, rc_context(settings):
        yield


def _draw_chart(axes: Axes, chart: Chart) -> None:
    (left, right), (low, high) = chart.x_limits, chart.y_limits
    _set_across(axes, chart.x, left, right)
    axes.set_ylim(low, high)
    axes.set_ylabel(chart.y.label)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _write(chart.y, value)))
    most = max(2, (chart.height - AROUND) // 34)
    axes.yaxis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10], integer=chart.y.whole))
    if chart.shade_to is not None and chart.shade_to > left:
        axes.axvspan(left, min(chart.shade_to, right), color=colour_of("sunk"), linewidth=0, zorder=0)
    for anchor in chart.anchors:
        if left <= anchor <= right:
            axes.axvline(anchor, color=colour_of("grey"), linestyle=":", linewidth=PIXEL, zorder=1)
    if chart.bars:
        _draw_bars(axes, chart)
    for series in chart.series:
        _draw_series(axes, series, chart)
    for placed in place_notes(chart, PLOT_WIDTH, chart.height - AROUND):
        axes.annotate(
            placed.note.text,
            (placed.note.x, placed.note.y),
            (placed.right * PIXEL, -placed.below * PIXEL),
            textcoords="offset points",
            ha=placed.side,
            va="center",
            fontsize="small",
            color=colour_of("ink"),
        )
    _add_legend(axes, [series.label for series in chart.series if series.label])


def _set_across(axes: Axes, axis: Axis, left: float, right: float) -> None:
    axes.set_xscale(axis.scale)
    axes.set_xlim(left, right)
    axes.set_xlabel(axis.label)
    if axis.scale == "log":
        axes.xaxis.set_major_locator(FixedLocator(log_ticks(left, right)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(PLOT_WIDTH // 58, steps=[1, 2, 5, 10], integer=axis.whole))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _write(axis, value)))


def log_ticks(left: float, right: float) -> list[float]:
    """Return round numbers along a logarithmic axis, as many as there is room for."""
    per_unit = PLOT_WIDTH / math.log10(right / left)
    powers = range(math.floor(math.log10(left)), math.ceil(math.log10(right)) + 1)
    for steps in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        every = [step * 10.0**power for power in powers for step in steps]
        ticks = [tick for tick in every if 0.9999 * left <= tick <= 1.0001 * right]
        gaps = [math.log10(after / before) * per_unit for before, after in pairwise(ticks)]
        if gaps and min(gaps) >= TICK_GAP:
            return ticks
    return [left, right]


def _write(axis: Axis, value: float) -> str:
    if axis.format == "macs":
        return format_macs(value)
    return f"{value:,.0f}" if axis.format == "count" else f"{value:.4g}"


def _draw_bars(axes: Axes, chart: Chart) -> None:
    axes.bar(
        [bar.start for bar in chart.bars],
        [bar.value for bar in chart.bars],
        [bar.end - bar.start for bar in chart.bars],
        align="edge",
        color=[colour_of("grey" if bar.muted else 0) for bar in chart.bars],
        edgecolor=colour_of("card"),
        linewidth=2 * PIXEL,
    )


def _draw_series(axes: Axes, series: Series, chart: Chart) -> None:
    colour, card = colour_of(series.colour), colour_of("card")
    across, upright = [point.x for point in series.points], [point.y for point in series.points]
    if series.banded:
        lower, upper = ([point.y + sign * point.spread for point in series.points] for sign in (-1, 1))
        axes.fill_between(across, lower, upper, color=colour, alpha=0.16, linewidth=0)
    for point in series.points:
        if point.interval:
            axes.vlines(point.x, *point.interval, colors=colour, alpha=0.4, linewidth=2 * PIXEL, capstyle="round")
    marker, scale = MARKERS[series.mark]
    crowded = len(across) > PLOT_WIDTH / MARK_GAP
    stroke = (1.5 if series.thin else 2.25) * PIXEL
    is_open = series.mark in OPEN
    axes.plot(
        across,
        upright,
        color=colour,
        label=series.label,
        linewidth=stroke,
        linestyle=_line_style(series, stroke),
        marker=marker,
        markersize=(6 if crowded and not series.line else 9) * PIXEL * scale,
        markevery=_spaced(across, chart) if crowded and series.line else None,
        markerfacecolor=_inside(series, colour),
        markeredgecolor=colour if is_open else card,
        markeredgewidth=(2 if is_open else 1.2) * PIXEL,
        clip_on=False,
    )


def _inside(series: Series, colour: str) -> str:
    if series.mark == "ring":  # goes around another mark
        return "none"
    return colour_of("card") if series.mark in OPEN else colour


def _line_style(series: Series, stroke: float) -> str | tuple[float, tuple[float, ...]]:
    if not series.line:
        return "none"
    # matplotlib counts dashes in strokes
    return (0, tuple(length * PIXEL / stroke for length in series.dash)) if series.dash else "-"


def _spaced(across: Sequence[float], chart: Chart) -> list[int]:
    """Return which points of a crowded line have a mark, so that marks stand apart."""
    left, right = chart.x_limits
    at = math.log if chart.x.scale == "log" else float
    gap = MARK_GAP / (PLOT_WIDTH) * (at(right) - at(left))
    marked: list[int] = []
    for place, value in enumerate(across):
        if not marked or abs(at(value) - at(across[marked[-1]])) >= gap:
            marked.append(place)
    return marked


def _add_legend(axes: Axes, labels: Sequence[str]) -> None:
    """Name the series above the axes, as many beside each other as there is room for."""
    if labels:
        each = 60 + 5.6 * max(map(len, labels))  # pixels
        columns = min(len(labels), max(1, int(PLOT_WIDTH / each)))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, fontsize="small")


def _draw_heat_map(axes: Axes, chart: HeatMap) -> None:
    axes.set_xlim(-0.5, len(chart.columns) - 0.5)
    axes.set_ylim(len(chart.rows) - 0.5, -0.5)
    axes.set_xticks(range(len(chart.columns)), chart.columns)
    axes.set_yticks(range(len(chart.rows)), chart.rows)
    axes.set_xlabel(chart.label)
    axes.tick_params(length=0)
    axes.spines.bottom.set_visible(False)
    axes.grid(visible=False)
    for row, values in enumerate(chart.values):
        for column, share in enumerate(values):
            if share is None:
                continue
            cell = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=cell_colour(share))
            cell.set(edgecolor=colour_of("card"), linewidth=3 * PIXEL)
            axes.add_patch(cell)
            ink = colour_of("on-accent" if share > 50 else "ink")
            axes.text(column, row, f"{share:.0f}", ha="center", va="center", color=ink, fontweight="bold")
