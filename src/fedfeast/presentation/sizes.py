"""What the sizes of runs come to while they train: charts over the rounds, cells of a table, and words."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedfeast.data.tasks import ACCURACY, Metric
from fedfeast.evaluation.selection import spread
from fedfeast.presentation.chart import DASHED, DOTTED, Axis, Chart, Point, Series, mark_of, metric_axis
from fedfeast.presentation.run_charts import label_of, thin
from fedfeast.runs import Run

MOST_SIZES = 5  # of a run: more lines could not be told apart, and more words are not read
DASHES = ((), DASHED, DOTTED)  # by run
GAP = 2  # columns between cells


def size_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return a chart for every metric: a line for each of a few sizes of a run, from the smallest to the largest.

    A size has its shade, a run its mark and dash.
    """
    lines: dict[Metric, list[Series]] = {}
    for number, run in enumerate(runs):
        histories = run.size_history
        names = spread(list(histories), MOST_SIZES)
        for place, name in enumerate(names):
            values = histories[name].items()
            points = [Point(at, run.metric.shown(value)) for at, value in values if math.isfinite(value)]
            shade = f"grade:{place / max(1, len(names) - 1):g}"
            label = name if len(runs) == 1 else f"{label_of(run)}, {name}"
            series = Series(label, thin(points), shade, mark_of(number), dash=DASHES[number % len(DASHES)], thin=True)
            lines.setdefault(run.metric, []).append(series)
    last = max(run.recipe.training.rounds for run in runs)
    rounds = Axis("round", "count", least=0, greatest=last, whole=True)
    return [
        Chart(rounds, metric_axis(metric, f"validation {metric.title}"), tuple(series), height=300)
        for metric, series in lines.items()
    ]


def size_cells(sizes: Sequence[Mapping[str, Any]], metric: Metric, width: int) -> list[list[str]]:
    """Return two rows of cells, names and values, of as many sizes of a round as fit the width."""
    what = "validation" if metric == ACCURACY else metric.title
    first = ("size", f"{what}, %" if metric.is_share else what)
    for count in range(len(sizes), 0, -1):
        columns = [first, *((size["name"], _value(size, metric)) for size in spread(sizes, count))]
        if sum(max(map(len, column)) + GAP for column in columns) - GAP <= width:
            return [list(row) for row in zip(*columns, strict=True)]
    return []


def sizes_in_words(sizes: Sequence[Mapping[str, Any]], metric: Metric) -> str:
    """Return what a few sizes of a round came to."""
    words = ", ".join(f"{size['name']} {_value(size, metric)}" for size in spread(sizes, MOST_SIZES))
    return f"{words}{metric.unit}"


def _value(size: Mapping[str, Any], metric: Metric) -> str:
    return metric.show(size["value"], digits=1).removesuffix(metric.unit)
