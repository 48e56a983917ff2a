"""Results as tables for people: a string beside a table is a plain line."""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from fedfeast.data.tasks import ACCURACY, Metric, task_named
from fedfeast.units import format_macs


def describe_run(summary: Mapping[str, Any], budgets_macs: np.ndarray) -> list[RenderableType]:
    """Show a run's curve, population score, traffic saved, client wins where counted, and where its picture lies."""
    curve = summary["curve"]
    served = np.array([point["macs"] for point in curve]).searchsorted(budgets_macs, side="right")
    table = _table(
        f"{escape(summary['recipe'])}: {summary['method']} after {summary['finished_rounds']} rounds",
        ("variant", "MACs", "parameters", "test accuracy", "clients served"),
    )
    for position, point in enumerate(curve, start=1):
        clients = int((served == position).sum())
        table.add_row(
            str(position),
            format_macs(point["macs"]),
            f"{point['parameters']:,}",
            _percent(point["accuracy"]),
            str(clients) if clients else "-",
        )
    return [table, *(f"{label:<19}{value}" for label, value in _run_facts(summary))]


def _run_facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    traffic, shares = summary["traffic"], summary["partition"]
    score = f"{summary['clients']} clients, each with the largest variant it affords"
    facts = [("population score", f"{_percent(summary['population_score'])} ({score})")]
    if summary["served_share"] < 1:
        served = f"{100 * summary['served_share']:.1f} %"
        facts.append(("clients served", f"{served}; the others count as 0 % in the score"))
    payload = f"{traffic['mean_payload_parameters']:,.0f} of {traffic['supernet_parameters']:,} parameters a client"
    saved = f"{traffic['reduction']:.2f}x less than sending the whole supernet ({payload})"
    correlation = (
        f"{shares['share_correlation']:.3f} correlated with their targets"
        if "share_correlation" in shares
        else "equal by design"
    )
    examples = f"{shares['smallest_shard']} to {shares['largest_shard']} examples a client"
    seconds = f"{summary['training_seconds']:.1f} s; best validated round {summary['best_round']}"
    facts += [
        ("traffic saved", saved),
        ("training time", seconds),
        ("data", f"{examples}, shares {correlation}; {shares['moved_examples']} examples moved"),
        *policy_facts(summary),
    ]
    if "client_wins" in summary:
        wins = summary["client_wins"]
        facts.append(("client wins", f"{wins['wins']} better, {wins['ties']} equal, {wins['losses']} worse"))
    return [*facts, ("picture", summary["picture"])]


def policy_facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a run says of refused replies, liars and privacy; nothing where all of it is off."""
    facts = []
    adversaries = summary.get("adversary_share", summary.get("hostile_share"))  # its name in the first release
    if adversaries is not None:
        facts.append(("hostile clients", f"{100 * adversaries:.0f} %"))
    if "refused_replies" in summary:
        refused = summary["refused_replies"]
        facts.append(("refused replies", f"{refused['count']} from {len(refused['by_client'])} clients"))
    if "privacy" in summary:
        spent = summary["privacy"]
        facts.append(
            (
                "privacy",
                f"epsilon {spent['epsilon']:.3g} at delta {spent['delta']:g}, {spent['participations']} updates",
            )
        )
    return facts


def ladder_table(index: Mapping[str, Any]) -> Table:
    """Show the networks of an exported ladder; quantised ones with the accuracy that is left."""
    first = index["rungs"][0]
    metric = task_named(first["task"]).metric_named(first["metric"]) if "task" in first else ACCURACY
    rungs = [(rung, _quantised(rung, metric)) for rung in index["rungs"]]
    headings = ["folder", "MACs", "parameters", f"test {metric.name}"]
    table = _table(f"ladder of {index['run']['name']}", headings + ["in int8"] * any(left for _, left in rungs))
    for rung, left in rungs:
        shown = [metric.show(value) for value in (_tested(rung, metric), *left) if value is not None]
        table.add_row(rung["folder"], f"{rung['macs']:,}", f"{rung['parameters']:,}", *shown)
    return table


def _quantised(rung: Mapping[str, Any], metric: Metric) -> list[float]:
    values = [_tested(facts, metric) for facts in rung["exports"].values()]
    return [value for value in values if value is not None]


def _tested(facts: Mapping[str, Any], metric: Metric) -> float | None:
    """Return what a network comes to on the test set, of classifications and of other tasks."""
    value: float | None = facts.get("test_figures", {}).get(metric.name, facts.get("test_accuracy"))
    return value


def latency_table(measured: Mapping[str, Any]) -> Table:
    """Show every served network's latency on the device that measured it."""
    title = f"one image on {measured['device']}, {measured['threads']} threads"
    table = _table(title, ("MACs", "parameters", "test accuracy", "median", "fastest"))
    for row in measured["points"]:
        times = (f"{row[key]:.3g} ms" for key in ("median_ms", "fastest_ms"))
        table.add_row(row["name"], f"{row['parameters']:,}", _percent(row["accuracy"]), *times)
    return table


def describe_data(rows: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Show every data set, its size and whether it is here; then what those need that are not."""
    table = _table(
        "data sets", ("name", "classes", "image", "train", "test", "server", "state"), left=("name", "state")
    )
    for row in rows:
        table.add_row(escape(row["name"]), *_size_of(row), row["state"])
    return [table, *(f"{row['name']}: {row['needs']}" for row in rows if row["needs"] != "nothing")]


def _size_of(row: Mapping[str, Any]) -> list[str]:
    if row["classes"] is None:
        return [""] * 5
    counts = (row[f"{split}_examples"] for split in ("train", "test", "server"))
    image = f"{row['side']} x {row['side']} x {row['channels']}"
    return [str(row["classes"]), image, *(f"{count:,}" if count else "" for count in counts)]


def study_list(studies: Sequence[Mapping[str, Any]], idle: Collection[str]) -> Table:
    """Show every study with its question; those that are idle train nothing."""
    table = Table("study", "what it asks", title="fedfeast study NAME")
    for one in studies:
        note = "; trains nothing" if one["name"] in idle else ""
        table.add_row(one["name"], f"{one['question']} [dim]{one['title']}{note}[/]")
    return table


def study_table(
    title: str, note: str, header: Sequence[str], lines: Sequence[Sequence[str]], numbers: int, grouped: bool
) -> Table:
    """Show one table of a study, whose last columns are numbers; grouped: a line with a first label begins a group."""
    table = Table(title=escape(title), caption=escape(note) or None)
    for position, heading in enumerate(header):
        is_label = position < len(header) - numbers
        table.add_column(escape(heading), justify="left" if is_label else "right", no_wrap=is_label)
    for line, following in pairwise([*lines, ["end"]]):
        table.add_row(*map(escape, line), end_section=grouped and bool(following[0]))
    return table


def _table(title: str, headings: Sequence[str], left: Collection[str] = ()) -> Table:
    """Return an empty table whose columns stand on the right, but for those named."""
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right")
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
