"""Results as charts: curves, training history, clients, coverage, a search, latencies."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedfeast.data.tasks import ACCURACY, Metric
from fedfeast.evaluation import Curve, metric_of
from fedfeast.evaluation.published import ANCHORS_MACS, ROUNDS, TRAINING_RULES
from fedfeast.networks.built import Member
from fedfeast.presentation.budget_histogram import budget_histogram
from fedfeast.presentation.chart import (
    COUNTED_CLIENTS,
    DASHED,
    DOTTED,
    Axis,
    Bar,
    Chart,
    HeatMap,
    Note,
    Point,
    Series,
    macs_axis,
    mark_of,
    metric_axis,
    published_series,
)
from fedfeast.runs import Run
from fedfeast.units import format_threads

MOST_POINTS = 600  # of a line over rounds: more than a screen has room for
MOST_NAMED = 8  # points of a latency chart
DASHES = {"student": DASHED, "supervised": DOTTED}


def label_of(run: Run) -> str:
    """Return what a run is called in a legend."""
    return f"{run.folder.path.name}, {run.recipe.method_name}"


def curve_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return the curves of measured runs of one metric, and below them the clients' budgets over the same axis."""
    lines = [(run, label, curve) for run in runs for label, curve in named_curves(run).items()]
    series = [_curve_series(run, label, curve, number) for number, (run, label, curve) in enumerate(lines)]
    anchors: tuple[float, ...] = ()
    if has_published(runs):
        anchors = tuple(ANCHORS_MACS)
        published = list(zip(anchors, TRAINING_RULES["cifar100"]["full"], strict=True))
        series.append(published_series(f"the paper's FEAST, {ROUNDS} rounds", published, "ink"))
    curve = lines[0][2]
    bars = budget_bars(runs[0].folder.budgets_macs(), min(curve.points[0].drawn_at for _, _, curve in lines))
    costs = [bars[0].start, bars[-1].end, *(point.x for one in series for point in one.points)]
    axis = macs_axis(least=min(costs) / 1.1, greatest=max(costs) * 1.1)
    what = curve.metric.title if all("curve_from" in run.summary for run in runs) else ""
    return [
        Chart(axis, metric_axis(curve.metric, what), tuple(series), anchors=anchors),
        Chart(axis, COUNTED_CLIENTS, bars=bars, bar_name="clients", height=170),
    ]


def has_published(runs: Sequence[Run]) -> bool:
    """Return whether the paper's points stand beside the curves of these runs."""
    return all(run.recipe.data.name == "cifar100" for run in runs)


def named_curves(run: Run) -> dict[str, Curve]:
    """Return a run's curve by what a legend calls it: one for every test set where there are several."""
    sets = run.folder.test_sets()
    if len(sets) > 1:
        return {f"{label_of(run)}, {name}": curve for name, curve in sets.items()}
    return {label_of(run): run.curve}


def _curve_series(run: Run, label: str, curve: Curve, number: int) -> Series:
    metric, score = curve.metric, curve.population_score(run.folder.budgets_macs())
    points = (
        Point(
            point.drawn_at,
            metric.shown(point.value),
            metric.shown(point.standard_error or 0.0),
            point.name,
            _shown_interval(metric, point.interval),
        )
        for point in curve.points
    )
    shown = f"{label}: population score {metric.show(score, digits=1)}"
    return Series(shown, tuple(points), number, mark_of(number))


def _shown_interval(metric: Metric, interval: Sequence[float] | None) -> tuple[float, float] | None:
    return None if interval is None else (metric.shown(interval[0]), metric.shown(interval[1]))


def budget_bars(budgets_macs: np.ndarray, smallest_macs: float) -> tuple[Bar, ...]:
    """Return how many clients have which budget, those below the smallest network muted."""
    fleet = budget_histogram(budgets_macs, [])
    edges = fleet["edges_macs"]
    return tuple(
        Bar(low, high, count, muted=math.sqrt(low * high) < smallest_macs)
        for low, high, count in zip(edges[:-1], edges[1:], fleet["counts"], strict=True)
    )


def history_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return training loss by role and validation score over the rounds."""
    losses: list[Series] = []
    scores: dict[Metric, list[Series]] = {}
    for number, run in enumerate(runs):
        rows = run.folder.metrics()
        for role in sorted({role for row in rows for role in row["losses"]}):
            points = [Point(row["round"], row["losses"][role]) for row in rows if role in row["losses"]]
            label, dash = f"{label_of(run)}, {role}", DASHES.get(role, ())
            losses.append(Series(label, thin(points), number, "none", dash=dash, thin=True))
        shown = run.metric.shown
        validated = [Point(row["round"], shown(row["validation_score"])) for row in rows if "validation_score" in row]
        if validated:
            series = Series(label_of(run), thin(validated), number, mark_of(number))
            scores.setdefault(run.metric, []).append(series)
        # What is served is the better of two vectors; the plain one is drawn beside it.
        plain = [
            Point(row["round"], shown(row["validation_scores"]["global"])) for row in rows if "validation_scores" in row
        ]
        if plain:
            label = f"{label_of(run)}, the global vector itself"
            scores[run.metric].append(Series(label, thin(plain), number, "none", dash=DASHED, thin=True))
    last = max(run.recipe.training.rounds for run in runs)
    rounds = Axis("round", "count", least=0, greatest=last, whole=True)
    charts = [Chart(rounds, Axis("mean training loss", floor=0), tuple(losses), height=240)]
    for metric, of_metric in scores.items():
        what = "validation score" if metric == ACCURACY else f"validation score, {metric.title}"
        charts.append(Chart(rounds, metric_axis(metric, what), tuple(of_metric), height=220))
    return charts


def clients_charts(run: Run) -> list[Chart]:
    """Return every client's data share over its budget, as asked for and as it came out."""
    rows = sorted(run.folder.clients(), key=lambda row: float(row["budget_macs"]))
    target, realized = (
        thin([Point(float(row["budget_macs"]), 100 * float(row[f"{kind}_share"]), name=row["name"]) for row in rows])
        for kind in ("target", "realized")
    )
    series = (
        Series("target share", target, "grey", "none"),
        Series("realized share", realized, line=False),
    )
    axis = macs_axis("client's budget (MACs per example, log scale)")
    return [Chart(axis, Axis("share of all examples (%)", "percent", floor=0), series, height=260)]


def coverage_charts(parts: Sequence[Mapping[str, Any]]) -> list[HeatMap]:
    """Return which part of the tensor is reached by how much data, by stage and block."""
    stages = tuple(dict.fromkeys(part["stage"] for part in parts))
    blocks = range(max(part["block"] for part in parts) + 1)
    shares = {(part["stage"], part["block"]): 100 * part["data_share"] for part in parts}
    values = tuple(tuple(shares.get((stage, block)) for block in blocks) for stage in stages)
    label = "block; each cell: share of all client data that reaches it (%)"
    return [HeatMap(label, stages, tuple(map(str, blocks)), values)]


def search_charts(found: Sequence[Any]) -> list[Chart]:
    """Return the fitness of searched variants and the shape they take, over their MACs."""
    macs = [one.macs for one in found]
    axis = macs_axis(least=min(macs) / 1.1, greatest=max(macs) * 1.1)
    fitness = Chart(axis, Axis("fitness"), (_line(macs, [one.fitness for one in found]),), height=260)
    first = found[0].architecture
    if isinstance(first, Member):
        choices = {name: [one.architecture.values[name] for one in found] for name in first.values}
        return [fitness, *(Chart(axis, Axis(name), (_line(macs, of),), height=170) for name, of in choices.items())]
    stages = range(len(first.depths))

    def by_stage(values: Sequence[Sequence[int]]) -> tuple[Series, ...]:
        lines = (tuple(map(Point, macs, [of_one[stage] for of_one in values])) for stage in stages)
        return tuple(Series(f"stage {stage + 1}", line, stage, "none") for stage, line in enumerate(lines))

    depths = by_stage([one.architecture.depths for one in found])
    widths = by_stage([one.architecture.width_indices[1:] for one in found])
    return [
        fitness,
        Chart(axis, Axis("extra blocks", "count", whole=True), depths, height=170),
        Chart(axis, Axis("width index", "count", whole=True), widths, height=170),
    ]


def _line(macs: Sequence[int], values: Sequence[float]) -> Series:
    return Series("", tuple(map(Point, macs, values)))


def latency_charts(measured: Mapping[str, Any]) -> list[Chart]:
    """Return the metric against measured latency; a line joins the networks that no faster one matches."""
    metric = metric_of(measured)
    every, best = _by_latency(measured, metric)
    named = np.unique(np.linspace(0, len(best) - 1, min(MOST_NAMED, len(best))).round().astype(int))
    series = (
        Series("served networks, named by their MACs", tuple(every), "grey", line=False),
        Series(
            f"{'more accurate' if metric == ACCURACY else 'better'} than all faster ones",
            tuple(replace(point, interval=None) for point in best),  # those of all networks are drawn
            thin=True,
        ),
    )
    axis = _latency_axis([point.x for point in every], measured)
    notes = tuple(Note(best[place].x, best[place].y, best[place].name) for place in named)
    return [Chart(axis, metric_axis(metric), series, notes=notes, height=380)]


def compared_latency_charts(measured: Mapping[str, Mapping[str, Any]]) -> list[Chart]:
    """Return several runs' metric against latencies of one device; lines join what no faster network matches."""
    first = next(iter(measured.values()))
    metric, series = metric_of(first), []
    for number, (label, one) in enumerate(measured.items()):
        every, best = _by_latency(one, metric)
        others = tuple(point for point in every if point not in best)
        series += [
            Series(label, tuple(best), number, mark_of(number), thin=True),
            Series("", others, number, mark_of(number), line=False),
        ]
    return [
        Chart(
            _latency_axis([point.x for one in series for point in one.points], first),
            metric_axis(metric),
            tuple(series),
        )
    ]


def _by_latency(measured: Mapping[str, Any], metric: Metric) -> tuple[list[Point], list[Point]]:
    """Return a run's networks from the fastest on, and those of them that no faster one matches."""
    # A file of the first release has accuracies alone.
    pairs = [(row, row["value"] if "value" in row else row["accuracy"]) for row in measured["points"]]
    pairs.sort(key=lambda pair: (pair[0]["median_ms"], -metric.merit(pair[1])))
    every = [
        Point(row["median_ms"], metric.shown(value), 0.0, row["name"], _shown_interval(metric, row.get("interval")))
        for row, value in pairs
    ]
    merits = [metric.merit(point.y) for point in every]
    return every, [
        point for place, point in enumerate(every) if all(merits[place] > faster for faster in merits[:place])
    ]


def _latency_axis(times_ms: Sequence[float], measured: Mapping[str, Any] | None = None) -> Axis:
    device = "" if measured is None else f", {measured['device']}, {format_threads(measured['threads'])}"
    room = max((max(times_ms) / min(times_ms)) ** 0.15, 1.02)  # for names, and for equal times
    label = f"latency of one example (ms){device}"
    return Axis(label, "milliseconds", "log", least=min(times_ms) / room, greatest=max(times_ms) * room)


def device_latency_charts(joined: Mapping[str, Any]) -> list[Chart]:
    """Return the metric against latencies that were measured elsewhere, a line a device."""
    metric = metric_of(joined)
    series = []
    for number, device in enumerate(joined["devices"]):
        rows = sorted(device["points"], key=lambda row: float(row["median_ms"]))
        points = (Point(row["median_ms"], metric.shown(row["value"]), name=row["name"]) for row in rows)
        series.append(Series(device["device"], tuple(points), number, mark_of(number)))
    axis = _latency_axis([point.x for one in series for point in one.points])
    limit = (joined["max_latency_ms"],) if "max_latency_ms" in joined else ()
    return [Chart(axis, metric_axis(metric), tuple(series), anchors=limit, height=380)]


def thin(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return at most about MOST_POINTS of them, evenly spread, the last one among them."""
    step = math.ceil(len(points) / MOST_POINTS)
    return (*points[:-1:step], *points[-1:]) if step > 1 else tuple(points)
