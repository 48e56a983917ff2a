"""Who is slow and who is left out, as charts and a table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedfeast.data.tasks import Metric
from fedfeast.evaluation.fairness import Decile, Fairness
from fedfeast.evaluation.fairness.deciles import MOST_GROUPS
from fedfeast.presentation.chart import DASHED, Axis, Chart, Point, Series, mark_of, metric_axis
from fedfeast.units import format_macs

HEADING = "Who is slow, who is left out"
Fact = Callable[[Decile], float | None]


def fairness_charts(measured: Sequence[tuple[str, Fairness]]) -> list[Chart]:
    """Return what each tenth of the clients gets, a chart a metric, how often it took part, and a fleet's seconds.

    With each run's table comes what a legend calls it.
    """
    greatest = max((len(one.deciles) for _, one in measured), default=0)
    what = "tenth of the clients" if greatest == MOST_GROUPS else "clients"
    axis = Axis(f"{what}, smallest budgets first", "count", least=0.5, greatest=greatest + 0.5, whole=True)
    charts = []
    for metric in dict.fromkeys(one.metric for _, one in measured):
        scores = _lines(measured, lambda one: one.score, metric)
        if scores:
            charts.append(Chart(axis, metric_axis(metric, f"score, {metric.title}"), tuple(scores), height=260))
    late = _lines(measured, lambda one: None if one.late is None else one.late / one.clients)
    answers = _lines(measured, lambda one: None if one.answered is None else one.answered / one.clients)
    if any(point.y for series in late for point in series.points):
        answers += [Series(f"{one.label}, late", one.points, one.colour, one.mark, dash=DASHED) for one in late]
    if answers:
        charts.append(Chart(axis, Axis("answers per client", least=0, span=1), tuple(answers), height=220))
    seconds = _lines(measured, lambda one: one.answer_seconds)
    if seconds:
        charts.append(Chart(axis, Axis("median seconds to answer", least=0, span=1), tuple(seconds), height=200))
    return charts


def _lines(measured: Sequence[tuple[str, Fairness]], fact: Fact, metric: Metric | None = None) -> list[Series]:
    """Return a line for every run that knows a fact, of one metric alone where that is what it is in."""
    lines = []
    for number, (label, fairness) in enumerate(measured):
        known = [(one, fact(one)) for one in fairness.deciles if metric in (None, fairness.metric)]
        points = tuple(
            Point(one.decile, value if metric is None else metric.shown(value), name=_budgets(one))
            for one, value in known
            if value is not None
        )
        if points:
            lines.append(Series(label, points, number, mark_of(number)))
    return lines


def fairness_table(fairness: Fairness) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows, a row for each tenth; what is not known of any of them is left out."""
    show, worst = fairness.metric.show, fairness.worst
    title = fairness.metric.title
    served_alone = any(one.value != one.score for one in fairness.deciles)  # else it is the score
    columns: dict[str, Callable[[Decile], str | None]] = {
        "tenth": lambda one: f"{one.decile}, the worst" if one == worst and fairness.gap else str(one.decile),
        "budgets (MACs)": _budgets,
        "clients": lambda one: f"{one.clients:,}",
        "score": lambda one: None if one.score is None else show(one.score),
        "by the best": lambda one: None if one.score_best is None else show(one.score_best),
        "own examples": lambda one: None if one.own_value is None else show(one.own_value),
        "served": lambda one: _count(one.served),
        f"{title} of those served": lambda one: show(one.value) if served_alone and one.value is not None else None,
        "asked": lambda one: _count(one.asked),
        "answered": lambda one: _count(one.answered),
        "refused": lambda one: _count(one.refused),
        "late": lambda one: _count(one.late),
        "failed": lambda one: _count(one.failed),
        "never took part": lambda one: _count(one.never_answered),
        "median seconds": lambda one: None if one.answer_seconds is None else f"{one.answer_seconds:.3g}",
        "examples": lambda one: f"{one.examples:,}",
    }
    told = {heading: [cell(one) for one in fairness.deciles] for heading, cell in columns.items()}
    known = {heading: cells for heading, cells in told.items() if any(cell is not None for cell in cells)}
    rows = [[cell or "-" for cell in cells] for cells in zip(*known.values(), strict=True)]
    return list(known), rows


def fairness_caption(fairness: Fairness) -> str:
    """Say what the table has, and what it cannot have."""
    groups = "Clients by tenths of their budgets" if len(fairness.deciles) == MOST_GROUPS else "Every client"
    about = " Seconds are from question to answer."
    if any(one.asked is None for one in fairness.deciles):
        about = " Who took part stays unknown: central privacy counts on it."
    elif any(one.late is None for one in fairness.deciles):
        about = " Simulated clients are never late."
    return f"{groups}, over all rounds.{about}{_gap_in_words(fairness)}"


def _gap_in_words(fairness: Fairness) -> str:
    worst, gap = fairness.worst, fairness.gap
    if worst is None or worst.score is None or not gap:
        return ""
    points = f"{100 * gap:.2f} points" if fairness.metric.is_share else f"{gap:.4g}"
    return f" The worst score is {fairness.metric.show(worst.score)}, {points} behind the best."


def worst_in_words(facts: Mapping[str, Any], metric: Metric) -> str | None:
    """Say of a summary's table which tenth gets least; None where it has no scores or all get the same."""
    scores: Sequence[float | None] = [one["score"] for one in facts.get("deciles", [])]
    known = [score for score in scores if score is not None]
    if not known or min(known) == max(known):
        return None
    worst = min(known, key=metric.merit)
    what = "tenth" if len(scores) == MOST_GROUPS else "client"
    place = f"{what} {scores.index(worst) + 1} of {len(scores)} by budget"
    return f"{metric.show(worst)} ({place}; the best has {metric.show(max(known, key=metric.merit))})"


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def _budgets(one: Decile) -> str:
    ends = dict.fromkeys((format_macs(one.least_macs), format_macs(one.greatest_macs)))
    return " to ".join(ends)
