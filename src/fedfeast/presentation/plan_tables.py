"""What is known before training as tables for people: plans, what a device affords, the methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedfeast.presentation.tables import title_of
from fedfeast.units import format_bytes, format_macs, format_seconds, format_threads

Plan = Mapping[str, Any]


def describe_plans(plans: Sequence[Plan]) -> list[RenderableType]:
    """Show plans side by side and, for a single one, who is sent what and which part is reached."""
    first = plans[0]
    title = title_of(first["recipe"], first["data"]["name"])
    table = Table(title=f"plan of {escape(title)}: {first['method']}, {first['rounds']} rounds")
    table.add_column("")
    for plan in plans:
        table.add_column("the data's clients" if plan["gamma"] is None else f"gamma {plan['gamma']:g}", justify="right")
    columns = [_lines(plan) for plan in plans]
    for name in dict.fromkeys(name for column in columns for name in column):
        table.add_row(name, *(column.get(name, "") for column in columns))
    if len(plans) > 1:
        return [table]
    return [table, _levels(first), *([_coverage(first["coverage"])] if first["coverage"] is not None else [])]


def _lines(plan: Plan) -> dict[str, str]:
    clients, data, traffic, compute = plan["clients"], plan["data"], plan["traffic"], plan["compute"]
    budgets, shards, reduction = clients["budget_macs"], data["expected_shard"], traffic["per_client_reduction"]
    lines = {
        "supernet parameters": f"{plan['supernet']['parameters']:,}",
        "variants": _variants(plan["variants"]),
        "clients (training, a round)": f"{clients['count']:,} ({clients['participating']:,}, {clients['per_round']})",
        "clients that afford one, two, more variants": " / ".join(map(str, clients["by_variants"].values())),
        "budgets: least, median, greatest": " / ".join(format_macs(budgets[key]) for key in ("min", "median", "max")),
        "expected shard: least, median, most": " / ".join(f"{shards[key]:.4g}" for key in ("min", "median", "max")),
        "realized shard: least, median, most": _realized(data["realized"]),
        "mean payload (parameters)": f"{traffic['mean_payload_parameters']:,.0f}",
        "largest payload (parameters)": f"{traffic['largest_payload_parameters']:,.0f}",
        "traffic saved": f"{traffic['reduction']:.2f}x",
        "per client: mean, median, most": " / ".join(f"{reduction[key]:.2f}x" for key in ("mean", "median", "max")),
        "traffic a round and in all, both ways": _gigabytes(traffic["round_gigabytes"], traffic["total_gigabytes"]),
        **_wire_facts(traffic),
        "training compute (MACs)": _pmacs(compute["training_pmacs"]),
        "with the largest variant alone": _pmacs(compute["single_variant_pmacs"]),
    }
    if "lifted" in clients:
        lines["budgets lifted to the smallest network"] = str(clients["lifted"])
    lines |= _notes_lines(data["realized"])
    lines |= _batch_lines(data["batches"])
    if "division" in clients:
        lines["held out, the server's, left out"] = " / ".join(
            str(clients["division"][key]) for key in ("held_out", "server", "excluded")
        )
        lines["budgets with data: rank correlation, gamma"] = _correlation(clients["budgets_and_data"])
    if "realized_training_pmacs" in compute:
        lines["training compute, realized shards"] = _pmacs(compute["realized_training_pmacs"])
    if "stated" in compute:
        stated = compute["stated"]
        pair = (_pmacs(stated[key]) for key in ("training_pmacs", "single_variant_pmacs"))
        lines["by stated MACs; largest alone"] = "; ".join(pair)
    if "beyond_budget" in clients:
        beyond = clients["beyond_budget"]
        lines["clients that train beyond their budget, by true MACs"] = (
            f"{beyond['any']}; {beyond['largest']} with their largest"
        )
    lines["the served round is chosen by"] = plan["selection"]["figure"]
    further = plan["sizes"]["further_points"]
    if further:
        cost = f"{100 * plan['sizes']['share_of_training']:.2g} % of training"
        lines["sizes validated to be followed"] = f"{len(plan['selection']['points']) + len(further)}; for {cost}"
    if plan["coverage"] is not None:
        lines["psi_min, psi_max (local steps a round)"] = (
            f"{plan['coverage']['psi_min']:.3g}, {plan['coverage']['psi_max']:.3g}"
        )
    lines |= _privacy_lines(plan.get("privacy"))
    if plan["memory"] is not None:
        lines |= _memory_lines(plan["memory"])
    lines |= _clock_lines(plan.get("clock"))
    if "time" in plan:
        lines |= _time_lines(plan["time"])
    return lines


def _clock_lines(clock: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what the simulated clock says of the clients and of the run, where there is one."""
    if clock is None:
        return {}
    seconds, given_up = clock["client_seconds"], clock["given_up"]
    answers = f"{clock['answers']:,} answers{f', {given_up:,} given up' if given_up else ''}"
    lines = {
        "a client's round by its speed: median, p95, longest": " / ".join(
            format_seconds(seconds[key]) for key in ("median", "p95", "max")
        ),
        "all rounds by the clients' speeds": f"{format_seconds(clock['seconds'])}, {answers}",
    }
    if clock["mode"] == "buffered":
        lines["age of merged answers: mean, oldest"] = f"{clock['mean_age']:.2f} / {clock['oldest']} merges"
        lines["as many answers in synchronous rounds"] = format_seconds(clock["synchronous"]["seconds"])
    return lines


def _privacy_lines(spent: Mapping[str, Any] | None) -> dict[str, str]:
    if spent is None:
        return {}
    return {
        "privacy after all rounds": f"epsilon {spent['epsilon']:.3g} at delta {spent['delta']:g}",
        "privacy noise over a round's update": f"{spent['noise_over_update']:.3g}",
    }


def _time_lines(time: Mapping[str, Any]) -> dict[str, str]:
    a_round, in_all = format_seconds(time["seconds_per_round"]), format_seconds(3600 * time["hours"])
    where = f"predicted time here, eager engine, {format_threads(time['threads'])}"
    return {where: f"{a_round} a round, {in_all} in all"}


def _variants(variants: Mapping[str, Any]) -> str:
    told = f"{variants['count']}, {format_macs(variants['macs_min'])} to {format_macs(variants['macs_max'])} MACs"
    if "price_min" not in variants:
        return told
    return f"{told}, priced {format_macs(variants['price_min'])} to {format_macs(variants['price_max'])}"


def _memory_lines(memory: Mapping[str, Any]) -> dict[str, str]:
    cards, present, all_at_once = memory["cards"], memory["present"], memory["clients_at_once"]
    sizes = " / ".join(f"{card['gib']:g}" for card in cards)
    fitting = " / ".join(f"{card['clients']} ({card['passes_at_once']})" for card in cards)
    lines = {
        f"GPU memory, estimated: {all_at_once} clients at once, one": (
            f"{memory['gib']:.3g} GiB, {memory['least_gib']:.2g} GiB"
        ),
        f"clients (passes of each) at once on {sizes} GB": fitting,
    }
    if present is not None:
        lines[f"clients (passes of each) at once within {present['gib']:.3g} GiB"] = (
            f"{present['clients']} ({present['passes_at_once']})"
            if present["clients"]
            else f"none: one takes {memory['least_gib']:.2g} GiB"
        )
    return lines


def _correlation(measured: Mapping[str, float | None]) -> str:
    values = [measured[key] for key in ("rank_correlation", "gamma")]
    return ", ".join("all alike" if value is None else f"{value:.2f}" for value in values)


def _realized(report: Mapping[str, float] | None) -> str:
    if report is None:
        return "not drawn: too many clients"
    return " / ".join(f"{report[key]:.4g}" for key in ("smallest_shard", "median_shard", "largest_shard"))


def _notes_lines(report: Mapping[str, float] | None) -> dict[str, str]:
    """Return what a partition has to say that others have not: examples that two hold, or nobody."""
    notes = report or {}
    lines = {}
    if "trained_validation_examples" in notes:
        lines["also trained on: validation, calibration examples"] = (
            f"{notes['trained_validation_examples']:,}, {notes['trained_calibration_examples']:,}"
        )
    if "unused_examples" in notes:
        lines["training examples of nobody"] = f"{notes['unused_examples']:,}"
    if "untrained_classes" in notes:
        lines["classes that nobody trains"] = str(notes["untrained_classes"])
    if notes.get("redraws"):
        lines["partitions drawn before one fitted"] = f"{notes['redraws']:,}"
    return lines


def _batch_lines(batches: Mapping[str, int] | None) -> dict[str, str]:
    """Return how many steps the clients take, where their shards are known."""
    if batches is None:
        return {}
    short = f", {batches['short']:,} of them on short batches" if batches["short"] else ""
    lines = {"local steps if every client trains once": f"{batches['steps']:,}{short}"}
    if batches["clients_without"]:
        lines["clients that take no step (training.least_distinct)"] = f"{batches['clients_without']:,}"
    return lines


@dataclass(frozen=True)
class UncutTable:
    """A table whose numbers are never cut: in a narrow terminal no lines stand between its columns."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw it as wide as the console allows."""
        columns, count = list(zip(*self.rows, strict=True)), len(self.headings)
        least = [max(len(part) for cell in cells for part in cell.split(" to ")) for cells in columns]
        headed = [max(width, *map(len, one.split())) for width, one in zip(least, self.headings, strict=True)]
        wanted = [max(map(len, (one, *cells))) for one, cells in zip(self.headings, columns, strict=True)]
        table = Table(title=self.title)
        room = options.max_width - (3 * count + 1)
        if sum(headed) > room:
            table = Table(title=self.title, box=None, padding=(0, 1, 0, 0), pad_edge=False)
            room = options.max_width - (count - 1)
        widths = headed if sum(headed) <= room else least
        left_over = room - sum(widths)
        for heading, width, most in zip(self.headings, widths, wanted, strict=True):
            more = max(0, min(most - width, left_over))
            left_over -= more
            side: JustifyMethod = "left" if heading == "stage" else "right"
            table.add_column(heading, justify=side, width=width + more, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        yield table


def _levels(plan: Plan) -> UncutTable:
    is_priced = "price_min" in plan["variants"]
    largest = ("largest, as priced", "true MACs, at most") if is_priced else ("largest",)
    rows = []
    for level in plan["levels"]:
        least, greatest = map(format_macs, level["budget_macs"])
        row = (
            least if least == greatest else f"{least} to {greatest}",
            f"{level['clients']:,}",
            str(level["affordable_variants"]),
            *([format_macs(level["largest_price"])] if is_priced else []),
            format_macs(level["largest_macs"]),
            f"{level['payload_parameters']:,.0f}",
            f"{level['expected_examples']:.4g}",
            format_macs(level["pass_macs"]),
        )
        rows.append(row)
    headings = ("budget", "clients", "variants", *largest, "payload", "examples", "MACs a step and example")
    return UncutTable("who is sent what", headings, tuple(rows))


def _wire_facts(traffic: Mapping[str, Any]) -> dict[str, str]:
    """Return what a smaller wire makes of the traffic, and what is remembered of clients for it."""
    facts = {}
    if traffic["round_gigabytes_down"] != traffic["round_gigabytes_up"]:
        facts["traffic a round to clients, and back"] = _gigabytes(
            traffic["round_gigabytes_down"], traffic["round_gigabytes_up"]
        )
    if "remembered_gigabytes" in traffic:
        facts["remembered of all clients (wire.state_gib)"] = _gigabytes(traffic["remembered_gigabytes"])
    return facts


def _gigabytes(*amounts: float) -> str:
    return ", ".join(format_bytes(1e9 * amount) for amount in amounts)


def _pmacs(amount: float) -> str:
    return format_macs(1e15 * amount)


def _coverage(coverage: Mapping[str, Any]) -> UncutTable:
    rows = []
    for stage in dict.fromkeys(part["stage"] for part in coverage["parts"]):
        parts = [part for part in coverage["parts"] if part["stage"] == stage]
        size = sum(part["parameters"] for part in parts)
        means = {
            name: sum(part["parameters"] * part[name] for part in parts) / size
            for name in ("client_share", "data_share")
        }
        row = (
            stage,
            f"{size:,}",
            f"{sum(part['routed_parameters'] for part in parts):,}",
            f"{sum(part['activated_parameters'] for part in parts):,}",
            f"{100 * means['client_share']:.1f} %",
            f"{100 * means['data_share']:.1f} %",
        )
        rows.append(row)
    headings = ("stage", "parameters", "routed", "trained", "clients that receive it", "data that reach it")
    return UncutTable("coverage by stage", headings, tuple(rows))


def describe_device(measured: Mapping[str, Any]) -> list[RenderableType]:
    """Show the timed sizes, the memory they took, and the suggested budget."""
    threads = format_threads(measured["threads"])
    title = f"{escape(measured['recipe'])}, {measured['method']} on {escape(measured['device'])}, {threads}"
    title += f", {measured['runtime']}"
    peak = measured["peak_memory_megabytes"]
    lines = [] if peak is None else [f"peak memory        {peak:.0f} MB of this process, torch included"]
    if measured.get("is_busy"):
        lines.append("busy               other programs disturbed it: some medians are over twice the fastest repeat")
    if "suggestion" in measured:
        suggestion = measured["suggestion"]
        lines.append(
            f"suggested budget   {suggestion['budget_macs']} MACs for {suggestion['target_milliseconds']:g} ms "
            f"an image; serves the network of {format_macs(suggestion['served_macs'])}"
        )
        lines.append(f'for a SuperNode    --node-config "budget-macs={suggestion["budget_macs"]}"')
    elif "refused" not in measured:
        lines.append("for a budget       add --target-ms, the latency per image that the device should keep")
    return [timings_table(measured["variants"], title), *lines]


def timings_table(variants: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Show the timed sizes."""
    table = Table(title=title)
    for heading in ("MACs", "parameters", "ms an image", "fastest to slowest", "MACs a second"):
        table.add_column(heading, justify="right")
    for one in variants:
        table.add_row(
            format_macs(one["macs"]),
            f"{one['parameters']:,}",
            f"{one['milliseconds']:.3g}",
            f"{one['fastest_milliseconds']:.3g} to {one['slowest_milliseconds']:.3g}",
            format_macs(one["macs_per_second"]),
        )
    return table


def describe_recipes(recipes: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Show the shipped recipes, each with what it trains, its data and whether they are here."""
    parts: list[RenderableType] = []
    for one in recipes:
        clients = "the data's own clients" if one["clients"] is None else f"{one['clients']:,} clients"
        here = "" if one["is_here"] else " (not here)"
        parts.append(Text(one["name"], style="bold"))
        parts.append(Padding(Text(one["summary"]), (0, 0, 0, 2)))
        facts = f"data {one['data']}{here}, {clients}, {one['rounds']:,} rounds"
        parts.append(Padding(Text(facts, style="dim"), (0, 0, 0, 2)))
    return parts


def describe_methods(methods: Sequence[Mapping[str, Any]], recipe: str) -> list[RenderableType]:
    """Show each method's name, what it does, where it comes from, what it would serve and its options."""
    parts: list[RenderableType] = [Text(f"methods (method.name), with their operating points for {recipe}")]
    for method in methods:
        budgets = "" if method["keeps_budgets"] else "; does not keep budgets"
        options = ", ".join(f"{name} = {value}" for name, value in method["options"].items())
        parts.append(Text.from_markup(f"\n[bold]{method['name']}[/]"))
        for line in (
            escape(method["summary"]),
            *([escape(method["suits"])] if method["suits"] else []),
            f"[dim]{escape(method['paper'])}[/]",
            f"{_served(method['operating_points'])}, of {method['parameters']:,} parameters{budgets}",
            _costs_of(method),
            f"[dim]options: {escape(options)}[/]",
            *([f"[dim]presets (method.preset): {', '.join(method['presets'])}[/]"] if method["presets"] else []),
        ):
            parts.append(Padding(Text.from_markup(line), (0, 0, 0, 2)))
    return parts


def _costs_of(method: Mapping[str, Any]) -> str:
    """Say what a method sends and computes, or why it does not."""
    if "refused" in method:
        return escape(f"does not suit this recipe: {method['refused']}")
    costs = method["costs"]
    return (
        f"sends {format_macs(costs['mean_payload_parameters'])} parameters to a client on average, "
        f"{_gigabytes(costs['round_gigabytes'])} a round both ways; "
        f"trains {_pmacs(costs['training_pmacs'])} MACs in all; "
        f"{costs['served_clients']} of {costs['clients']} clients are served"
    )


def _served(points: Sequence[Mapping[str, Any]]) -> str:
    """Name a few points, or the ends of many."""
    names = [point["name"] for point in points]
    if len(names) <= 5:
        return f"serves {', '.join(names)} MACs"
    return f"serves {len(names)} points from {names[0]} to {names[-1]} MACs"


def describe_check(report: Mapping[str, Any]) -> list[RenderableType]:
    """Show every rule that a method was tried by, and what violates it."""
    broken = sum(rule["violation"] is not None for rule in report["rules"])
    parts: list[RenderableType] = []
    for rule in report["rules"]:
        mark = "[green]kept[/]    " if rule["violation"] is None else "[bold red]violated[/]"
        parts.append(Text.from_markup(f"{mark}  {escape(rule['says'])}"))
        if rule["violation"] is not None:
            parts.append(Padding(Text(rule["violation"]), (0, 0, 0, 10)))
    parts.append(Text(f"{report['method']}: {'every rule is kept' if not broken else f'{broken} violated'}"))
    return parts
