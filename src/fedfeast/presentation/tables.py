"""Results as tables for people."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedfeast.evaluation import ClientWins
from fedfeast.runs import Run
from fedfeast.units import format_macs


def _correlation(partition: Mapping[str, float]) -> str:
    """Say how well realized data shares follow their targets, where targets differ."""
    if "share_correlation" not in partition:
        return "equal by design"
    return f"{partition['share_correlation']:.3f} correlated with their targets"


def print_summary(run: Run, picture: Path, wins: ClientWins | None, console: Console) -> None:
    """Print the curve, the population score, the traffic saved and where the picture lies."""
    summary, curve = run.summary, run.curve
    served = np.array([point.macs for point in curve.points]).searchsorted(run.folder.budgets_macs(), side="right")
    table = Table(title=f"{escape(summary['recipe'])}: {summary['method']} after {summary['finished_rounds']} rounds")
    for heading in ("variant", "MACs", "parameters", "test accuracy", "clients served"):
        table.add_column(heading, justify="right")
    for position, point in enumerate(curve.points, start=1):
        clients = int((served == position).sum())
        table.add_row(
            str(position),
            format_macs(point.macs),
            f"{point.parameters:,}",
            f"{100 * point.accuracy:.2f} %",
            str(clients) if clients else "-",
        )
    console.print(table)
    traffic = summary["traffic"]
    lines = [
        f"population score   {100 * summary['population_score']:.2f} % "
        f"({summary['clients']} clients, each with the largest variant it affords)",
        f"traffic saved      {traffic['reduction']:.2f}x less than sending the whole supernet "
        f"({traffic['mean_payload_parameters']:,.0f} of {traffic['supernet_parameters']:,} parameters a client)",
        f"training time      {summary['training_seconds']:.1f} s; best validated round {summary['best_round']}",
    ]
    if summary["served_share"] < 1:
        lines.insert(
            1,
            f"clients served     {100 * summary['served_share']:.1f} %; the others count as 0 % in the score",
        )
    shares = summary["partition"]
    lines.append(
        f"data               {shares['smallest_shard']} to {shares['largest_shard']} examples a client, "
        f"shares {_correlation(shares)}; {shares['moved_examples']} examples moved"
    )
    lines += [f"{label:<19}{value}" for label, value in policy_facts(summary)]
    if wins is not None:
        lines.append(f"client wins        {wins.wins} better, {wins.ties} equal, {wins.losses} worse")
    lines.append(f"picture            {picture}")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def policy_facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a run says of refused replies, liars and privacy; nothing where all of it is off."""
    facts = []
    if "hostile_share" in summary:
        facts.append(("hostile clients", f"{100 * summary['hostile_share']:.0f} %"))
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
