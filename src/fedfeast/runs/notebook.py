"""A run in a notebook: a live line while it trains, and a table of what came out."""

import sys
import time
from collections.abc import Sequence
from html import escape
from typing import Any

from fedfeast.data.tasks import Metric
from fedfeast.evaluation import Curve
from fedfeast.runs.folder import RunFolder
from fedfeast.units import format_macs, format_seconds

EVERY_SECONDS = 0.25  # between two pictures of one line: a browser need not draw more
BAR = "min-width:10em;background:linear-gradient(90deg,#4c78a855 {share:.1f}%,transparent {share:.1f}%)"


def in_notebook() -> bool:
    """Return whether this process is a notebook's kernel; a terminal's IPython is none."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


class NotebookProgress:
    """An observer that keeps one line below the cell up to date: rounds, time left, loss, validation."""

    def __init__(self, metric: Metric) -> None:
        from IPython.display import display

        self._metric, self._validation = metric, ""
        self._total, self._began, self._before, self._last = 0, time.monotonic(), 0, 0.0
        self._line = display(_Line("starting", "starting"), display_id=True)

    def on_start(self, finished_rounds: int, total_rounds: int, damaged: Sequence[str]) -> None:
        """Begin at the finished rounds; name checkpoints that were passed over."""
        self._total, self._before, self._began = total_rounds, finished_rounds, time.monotonic()
        passed_over = "".join(f"; {name} is damaged and passed over" for name in damaged)
        said = "training" if finished_rounds < total_rounds else f"{total_rounds} rounds, finished before"
        self._show(finished_rounds, total_rounds, said + passed_over, last=True)

    def on_round(self, row: dict[str, Any]) -> None:
        """Show how far it is, its mean loss and the latest validation score."""
        if "validation_score" in row:
            self._validation = f", validation {self._metric.named(row['validation_score'])}"
        done, losses = row["round"], " ".join(f"{role} {loss:.3f}" for role, loss in row["losses"].items())
        seconds = (time.monotonic() - self._began) / (done - self._before)
        left = f", {format_seconds(seconds * (self._total - done))} left" if done < self._total else ""
        self._show(done, self._total, f"round {done} of {self._total}{left}, loss {losses}{self._validation}")

    def on_evaluation(self, measured: int, total: int) -> None:
        """Show how many networks are measured; at the end how long all of it took."""
        if measured < total:
            self._show(measured, total, f"test curve, {measured} of {total} networks")
        else:
            trained = self._total - self._before
            done = f"{trained} round{'s' * (trained > 1)}" if trained else f"{total} networks measured"
            self._show(1, 1, f"{done} in {format_seconds(time.monotonic() - self._began)}", last=True)

    def _show(self, done: int, total: int, text: str, last: bool = False) -> None:
        now = time.monotonic()
        if last or done == total or now - self._last >= EVERY_SECONDS:
            self._last = now
            bar = f'<progress value="{done}" max="{total}"></progress>'
            self._line.update(_Line(text, f"{bar} {escape(text)}"))


class _Line:
    """A line for a notebook as HTML, and in words for what shows none."""

    def __init__(self, text: str, html: str) -> None:
        self._text, self._html = text, html

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return self._text


def run_html(folder: RunFolder) -> str:
    """Return a run as a notebook shows it: what it is, how far, and every measured size."""
    recipe = folder.recipe()
    head = f"<b>{escape(recipe.name)}</b>: {escape(recipe.method_name)} on {escape(recipe.data.name)}"
    if not folder.has_summary():
        done = len(folder.metrics()) if folder.has_finished_rounds() else 0
        return f"<p>{head}, {done} of {recipe.training.rounds} rounds, in {escape(str(folder.path))}</p>"
    summary, curve, budgets = folder.summary(), folder.curve(), folder.budgets_macs()
    said = (
        f"{head}, {summary['finished_rounds']} rounds, served by round {summary['best_round']}. "
        f"Mean over {len(budgets)} clients, each with the largest it affords: "
        f"<b>{escape(curve.metric.named(curve.population_score(budgets)))}</b>; "
        f"{summary['traffic']['reduction']:.1f} times less traffic than the whole network."
    )
    return f"<p>{said}</p>{_curve_table(curve, curve.count_affordable(budgets).tolist())}"


def _curve_table(curve: Curve, affordable: Sequence[int]) -> str:
    """Return a row for each size, with a bar for its value: shares from 0, others from the worst to the best."""
    merits = [curve.metric.merit(point.value) for point in curve.points]
    low, high = 0.0 if curve.metric.is_share else min(merits), max(merits)
    head = "".join(f"<th>{escape(name)}</th>" for name in ("MACs", "parameters", curve.metric.title, "clients served"))
    rows = []
    for place, (point, merit) in enumerate(zip(curve.points, merits, strict=True), start=1):
        bar = BAR.format(share=100 * (merit - low) / (high - low) if high > low else 100.0)
        rows.append(
            f"<tr><td>{format_macs(point.macs)}</td><td>{point.parameters:,}</td>"
            f'<td style="{bar}">{escape(curve.metric.show(point.value, point.standard_error))}</td>'
            f"<td>{affordable.count(place)}</td></tr>"
        )
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"
