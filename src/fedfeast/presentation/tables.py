"""Results as tables for people: a string beside a table is a plain line."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedfeast.data import DatasetFacts
from fedfeast.data.tasks import ACCURACY, METRICS, Metric, task_named
from fedfeast.evaluation import Curve, CurvePoint, metric_of
from fedfeast.presentation.fairness import worst_in_words
from fedfeast.units import format_bytes, format_macs, format_seconds, format_threads


def describe_run(summary: Mapping[str, Any], budgets_macs: np.ndarray) -> list[RenderableType]:
    """Show a run's curve, population score, traffic saved, client wins where counted, and where its picture lies."""
    curve = Curve.read(summary["curve"], summary)
    served = curve.count_affordable(budgets_macs)
    figures = figure_columns(summary)
    title = escape(title_of(summary["recipe"], summary["data"]))
    table = _table(
        f"{title}: {summary['method']} after {summary['finished_rounds']} rounds",
        ("variant", *cost_headings(curve), "parameters", *figures, "clients served"),
    )
    for position, point in enumerate(curve.points, start=1):
        clients = int((served == position).sum())
        table.add_row(
            str(position),
            *costs_of(point, curve),
            f"{point.parameters:,}",
            *(column[position - 1] for column in figures.values()),
            str(clients) if clients else "-",
        )
    return [table, *(f"{label:<19}{value}" for label, value in _run_facts(summary))]


def title_of(recipe: str, data: str) -> str:
    """Return what a run is titled by: its data, which may be others than those that its recipe is named after."""
    return data if recipe == data else f"{data} (recipe {recipe})"


def cost_headings(curve: Curve | None) -> list[str]:
    """Return the headings of what points cost: where budgets are compared with other MACs, these come first."""
    return ["MACs, as priced", "true MACs"] if curve is not None and curve.is_priced else ["MACs"]


def costs_of(point: CurvePoint, curve: Curve) -> list[str]:
    """Return what a point costs under those headings."""
    return [format_macs(point.price), *([format_macs(point.macs)] if curve.is_priced else [])]


def best_scores(summary: Mapping[str, Any]) -> list[float]:
    """Return the population score under best-affordable serving; nothing where an earlier version wrote the summary."""
    return [summary["population_score_best"]] if "population_score_best" in summary else []


def served_round(facts: Mapping[str, Any]) -> str:
    """Say which round is served, and where a running average was kept, which of both vectors."""
    words = {"global": ", the global vector itself", "average": ", the running average"}
    return f"{facts['best_round']}{words.get(facts.get('served_vector', ''), '')}"


def figure_columns(summary: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what every point came to, by heading: on each test set where there are several, else every figure."""
    sets = {name: Curve.read(one["curve"], summary) for name, one in summary.get("test_sets", {}).items()}
    curve = Curve.read(summary["curve"], summary)
    metric = curve.metric
    if len(sets) > 1:
        return {f"{metric.title}, {name}": _values(one) for name, one in sets.items()}
    others = [name for name in METRICS if curve.points and name in curve.points[0].figures and name != metric.name]
    title = metric.title if "curve_from" in summary else f"test {metric.title}"
    return {title: _values(curve)} | {
        METRICS[name].title: [METRICS[name].show(point.figures[name]) for point in curve.points] for name in others
    }


def _values(curve: Curve) -> list[str]:
    return [curve.metric.show(point.value, point.standard_error) for point in curve.points]


def certainty_column(curve: Curve) -> dict[str, list[str]]:
    """Return by its heading within which accuracies lie; nothing where the test set is large."""
    found = [point.interval for point in curve.points]
    if None in found:
        return {}
    return {"95 % certain": [f"{100 * low:.1f} to {100 * high:.1f} %" for low, high in filter(None, found)]}


def _run_facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    traffic = summary["traffic"]
    score = f"{summary['clients']} clients, each with the largest variant it affords"
    metric = metric_of(summary)
    facts = [("population score", f"{metric.show(summary['population_score'])} ({score})")]
    facts += [
        ("by the best", f"{metric.show(best)} (each with the best variant it affords)") for best in best_scores(summary)
    ]
    facts += [("worst served", worst) for worst in [worst_in_words(summary.get("fairness", {}), metric)] if worst]
    facts += measured_on(summary)
    if summary["served_share"] < 1:
        served = f"{100 * summary['served_share']:.1f} %"
        counted = f"{metric.shown(summary.get('unserved_value', 0.0)):.4g}{metric.unit}"
        facts.append(("clients served", f"{served}; the others count as {counted} in the score"))
    payload = f"{traffic['mean_payload_parameters']:,.0f} of {traffic['supernet_parameters']:,} parameters a client"
    saved = f"{traffic['reduction']:.2f}x less than sending the whole supernet ({payload})"
    seconds = f"{summary['training_seconds']:.1f} s; best validated round {served_round(summary)}"
    facts += [
        ("traffic saved", saved),
        *bytes_facts(traffic),
        ("training time", seconds),
        ("data", data_in_words(summary)),
        *policy_facts(summary),
    ]
    if "client_wins" in summary:
        wins = summary["client_wins"]
        facts.append(("client wins", f"{wins['wins']} better, {wins['ties']} equal, {wins['losses']} worse"))
    return [*facts, ("picture", summary["picture"])]


def bytes_facts(counted: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what training sent and got back, by a heading; nothing of runs that did not count it."""
    if "bytes_down" not in counted or "bytes_up" not in counted:
        return []
    down, up = format_bytes(counted["bytes_down"]), format_bytes(counted["bytes_up"])
    return [("bytes of messages", f"{down} to clients, {up} back")]


def data_in_words(summary: Mapping[str, Any]) -> str:
    """Say what clients hold: how it came out of what was asked, or how the data's own go with their budgets."""
    shares = summary["partition"]
    examples = f"{shares['smallest_shard']} to {shares['largest_shard']} examples a client"
    if "division" in summary:
        division, measured = summary["division"], summary["budgets_and_data"]
        correlation = measured["rank_correlation"]
        together = "all alike"
        if correlation is not None:
            together = f"{correlation:.2f} correlated with budgets (gamma {measured['gamma']:.2f})"
        roles = {"held_out": "held out", "server": "the server's", "excluded": "left out", "pooled": "in pools"}
        others = "".join(f", {division[key]} {role}" for key, role in roles.items() if division[key])
        return f"{examples}, {together}; {division['training']} clients train{others}"
    others = _held_by_two_or_nobody(shares)
    if "listed_examples" in shares:
        return f"{examples}, as a file lists them{others}"
    correlation = (
        f"{shares['share_correlation']:.3f} correlated with their targets"
        if "share_correlation" in shares
        else "equal by design"
    )
    return f"{examples}, shares {correlation}; {shares['moved_examples']} examples moved{others}"


def _held_by_two_or_nobody(partition: Mapping[str, Any]) -> str:
    """Say which of the server's examples clients train on too, and how many examples nobody uses."""
    told = ""
    if "trained_validation_examples" in partition:
        told += (
            f"; clients also train on {partition['trained_validation_examples']} of the server's validation and "
            f"{partition['trained_calibration_examples']} of its calibration examples"
        )
    if "unused_examples" in partition:
        told += f"; {partition['unused_examples']} training examples are used by nobody"
    if "untrained_classes" in partition:
        told += f"; nobody trains {partition['untrained_classes']} of the classes"
    return told


def measured_on(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return on what the curve was measured, where that is no test set."""
    return [("measured on", summary["curve_from"])] if "curve_from" in summary else []


def policy_facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a run says of its clock, late answers, refused replies, liars and privacy; nothing of what is off."""
    facts = []
    if "clock_seconds" in summary:
        facts.append(("simulated clock", format_seconds(summary["clock_seconds"])))
    if "ages" in summary:
        ages = summary["ages"]
        facts.append(("age of answers", f"{ages['mean']:.2f} merges on average, {ages['oldest']} at most"))
    adversaries = summary.get("adversary_share", summary.get("hostile_share"))  # its name in the first release
    if adversaries is not None:
        facts.append(("hostile clients", f"{100 * adversaries:.0f} %"))
    if "refused_replies" in summary:
        refused = summary["refused_replies"]
        facts.append(("refused replies", f"{refused['count']} from {len(refused['by_client'])} clients"))
    if "privacy" in summary:
        spent = summary["privacy"]
        is_central = spent.get("mechanism") == "central"
        over = f"{spent['rounds']} rounds, central" if is_central else f"{spent['participations']} updates"
        facts.append(("privacy", f"epsilon {spent['epsilon']:.3g} at delta {spent['delta']:g}, {over}"))
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
        table.add_row(rung["folder"], f"{rung.get('price', rung['macs']):,}", f"{rung['parameters']:,}", *shown)
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
    title = f"one example on {measured['device']}, {format_threads(measured['threads'])}"
    metric = metric_of(measured)
    table = _table(title, ("MACs", "parameters", f"test {metric.title}", "median", "fastest"))
    for row in measured["points"]:
        times = (f"{row[key]:.3g} ms" for key in ("median_ms", "fastest_ms"))
        value = row["value"] if "value" in row else row["accuracy"]  # all that the first release wrote
        table.add_row(row["name"], f"{row['parameters']:,}", metric.show(value), *times)
    return table


def device_latency_tables(joined: Mapping[str, Any]) -> list[Table]:
    """Show what was measured on other devices and, where there is a limit, what each of them gets."""
    metric = metric_of(joined)
    every = _table(
        f"measured elsewhere, {joined['measured']}",
        ("device", "MACs", "parameters", f"test {metric.title}", "median", "measurements"),
        left=("device",),
    )
    for device in joined["devices"]:
        for row in device["points"]:
            costs = (row["name"], f"{row['parameters']:,}", metric.show(row["value"]))
            every.add_row(escape(device["device"]), *costs, f"{row['median_ms']:.3g} ms", str(row["repeats"]))
    if "max_latency_ms" not in joined:
        return [every]
    chosen = _table(
        f"the largest within {joined['max_latency_ms']:g} ms",
        ("device", "MACs", f"test {metric.title}", "median"),
        left=("device",),
    )
    for device in joined["devices"]:
        row = next((one for one in device["points"] if one["name"] == device["chosen"]), None)
        fastest = min(one["median_ms"] for one in device["points"])
        cells = (
            ("none", "", f"from {fastest:.3g} ms")
            if row is None
            else (row["name"], metric.show(row["value"]), f"{row['median_ms']:.3g} ms")
        )
        chosen.add_row(escape(device["device"]), *cells)
    return [every, chosen]


def describe_data(rows: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Show every data set, whether it is here and its size; then what those need that are not."""
    parts: list[RenderableType] = []
    for row in rows:
        parts.append(Text.assemble((row["name"], "bold"), f"  {row['state']}"))
        if row["classes"] is not None:
            parts.append(Padding(Text(_size_of(row)), (0, 0, 0, 2)))
    return [*parts, *(f"{row['name']}: {row['needs']}" for row in rows if row["needs"] != "nothing")]


def _size_of(row: Mapping[str, Any]) -> str:
    facts = DatasetFacts(**{name: row[name] for name in DatasetFacts.__dataclass_fields__ if name in row})
    counts = {
        "to train": row["train_examples"],
        "to test": row["test_examples"],
        "held by the server": facts.server_examples,
        "clients of their own": row["clients"],
    }
    counted = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return f"{example_in_words(facts)}, {outputs_in_words(facts)}; {counted}"


def outputs_in_words(facts: DatasetFacts) -> str:
    """Say what is to be predicted: how many classes, or what the task has in their place."""
    kinds = {"next-token": "next tokens", "multi-label": "labels", "regression": "targets"}
    kind = kinds.get(facts.task, "classes")
    return (
        f"1 {kind.removesuffix('s')}"
        if facts.classes == 1 and facts.task != "classification"
        else f"{facts.classes} {kind}"
    )


def example_in_words(facts: DatasetFacts) -> str:
    """Say what one example is."""
    if facts.kind == "images":
        tint = {1: "grey ", 3: "colour "}.get(facts.channels, "")
        return f"{facts.side} x {facts.side} {tint}images"
    return f"{' x '.join(map(str, facts.input_shape))} {facts.kind}"


def _table(title: str, headings: Sequence[str], left: Collection[str] = ()) -> Table:
    """Return an empty table whose columns stand on the right, but for those named."""
    table = Table(title=title)
    for heading in headings:
        # In a narrow terminal a long heading is broken, not cut.
        table.add_column(heading, justify="left" if heading in left else "right", overflow="fold")
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
