"""Results as descriptions of charts, which look/charts.js draws in the reader's browser."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedfeast.evaluation.published import ANCHORS_MACS, ROUNDS, TRAINING_RULES
from fedfeast.presentation.budget_histogram import budget_histogram
from fedfeast.presentation.pictures import label_of
from fedfeast.runs import Run

Chart = dict[str, Any]
Point = list[Any]
ACCURACY = {"label": "test accuracy (%)", "format": "percent", "span": 10, "ceiling": 100.5}
MOST_POINTS = 600  # of a line over rounds: more than a screen has room for
DASHES = {"student": "7 4", "supervised": "2 4"}


def macs_axis(label: str = "inference cost (MACs per example, log scale)") -> Chart:
    """Return a logarithmic axis of MACs."""
    return {"label": label, "scale": "log", "format": "macs", "unit": "MACs"}


def curve_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return the accuracy-MACs curves of measured runs, and below them the clients' budgets over the same axis."""
    series: list[Chart] = [
        {
            "label": f"{label_of(run)}: population score {100 * run.population_score:.1f} %",
            "colour": position,
            "points": [[point.macs, 100 * point.accuracy, 0, point.name] for point in run.curve.points],
        }
        for position, run in enumerate(runs)
    ]
    anchors: Sequence[float] = ()
    if all(run.recipe.data.name == "cifar100" for run in runs):
        anchors = ANCHORS_MACS
        published = list(zip(anchors, TRAINING_RULES["cifar100"]["full"], strict=True))
        series.append(paper_series(f"the paper's FEAST, {ROUNDS} rounds", published, "ink"))
    budgets = runs[0].folder.budgets_macs()
    fleet = budget_histogram(budgets, [])
    edges = fleet["edges_macs"]
    costs = [*edges, *(point[0] for one in series for point in one["points"])]
    axis = {**macs_axis(), "min": min(costs) / 1.1, "max": max(costs) * 1.1}
    least = min(run.curve.points[0].macs for run in runs)
    bars = [
        {"from": low, "to": high, "value": value, "muted": math.sqrt(low * high) < least}
        for low, high, value in zip(edges[:-1], edges[1:], fleet["counts"], strict=True)
    ]
    return [
        {"kind": "xy", "x": axis, "y": ACCURACY, "series": series, "anchors": list(anchors)},
        {
            "kind": "xy",
            "height": 170,
            "x": {**axis, "label": "clients' budgets (MACs per example, log scale)"},
            "y": {"label": "clients", "format": "count", "whole": True},
            "bars": bars,
            "barName": "clients",
        },
    ]


def history_charts(runs: Sequence[Run]) -> list[Chart]:
    """Return training loss by role and validation score over the rounds."""
    losses, scores = [], []
    for position, run in enumerate(runs):
        rows = run.folder.metrics()
        for role in sorted({role for row in rows for role in row["losses"]}):
            points = thin([[row["round"], row["losses"][role]] for row in rows if role in row["losses"]])
            line = {"label": f"{label_of(run)}, {role}", "colour": position, "points": points}
            losses.append({**line, "dash": DASHES.get(role, ""), "thin": True, "mark": "none"})
        validated = thin([[row["round"], 100 * row["validation_score"]] for row in rows if "validation_score" in row])
        if validated:
            scores.append({"label": label_of(run), "colour": position, "points": validated})
    rounds = {"label": "round", "format": "count", "whole": True, "min": 0}
    rounds["max"] = max(run.recipe.training.rounds for run in runs)
    loss = {"label": "mean training loss", "floor": 0}
    score = {"label": "validation score (%)", "format": "percent", "span": 10, "ceiling": 100.5}
    charts = [{"kind": "xy", "height": 240, "x": rounds, "y": loss, "series": losses}]
    return [*charts, {"kind": "xy", "height": 220, "x": rounds, "y": score, "series": scores}] if scores else charts


def clients_charts(run: Run) -> list[Chart]:
    """Return every client's data share over its budget, as asked for and as it came out."""
    rows = sorted(run.folder.clients(), key=lambda row: float(row["budget_macs"]))
    shares = {
        kind: [[float(row["budget_macs"]), 100 * float(row[f"{kind}_share"]), 0, row["name"]] for row in rows]
        for kind in ("target", "realized")
    }
    series = [
        {"label": "target share", "colour": "grey", "points": thin(shares["target"]), "mark": "none"},
        {"label": "realized share", "colour": 0, "points": thin(shares["realized"]), "line": False},
    ]
    axis = macs_axis("client's budget (MACs per example, log scale)")
    share = {"label": "share of all examples (%)", "format": "percent", "floor": 0}
    return [{"kind": "xy", "height": 260, "x": axis, "y": share, "series": series}]


def coverage_charts(parts: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return which part of the tensor is reached by how much data, by stage and block."""
    stages = list(dict.fromkeys(part["stage"] for part in parts))
    deepest = max(part["block"] for part in parts) + 1
    values: list[list[float | None]] = [[None] * deepest for _ in stages]
    for part in parts:
        values[stages.index(part["stage"])][part["block"]] = 100 * part["data_share"]
    axis = {"label": "block; each cell: share of all client data that reaches it (%)"}
    return [{"kind": "grid", "rows": stages, "columns": list(range(deepest)), "values": values, "x": axis}]


def thin(points: list[Point]) -> list[Point]:
    """Return at most about MOST_POINTS of them, evenly spread, the last one among them."""
    step = math.ceil(len(points) / MOST_POINTS)
    return points[:-1:step] + points[-1:] if step > 1 else points


def paper_series(label: str, points: Sequence[tuple[float, float]], colour: int | str) -> Chart:
    """Return published points, drawn as open diamonds; a label without points is for the legend."""
    shown = [[macs, accuracy, 0, "the paper's"] for macs, accuracy in points]
    return {"label": label, "colour": colour, "points": shown, "line": False, "mark": "diamond"}
