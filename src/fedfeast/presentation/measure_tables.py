"""What a device can afford, as a table for people."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedfeast.units import format_macs


def print_measured(measured: Mapping[str, Any], console: Console) -> None:
    """Print the timed sizes, the memory they took, and the suggested budget."""
    threads = f"{measured['threads']} thread{'s' if measured['threads'] > 1 else ''}"
    title = f"{escape(measured['recipe'])}, {measured['method']} on {escape(measured['device'])}, {threads}"
    title += f", {measured['runtime']}"
    table = Table(title=title)
    for heading in ("MACs", "parameters", "ms an image", "fastest to slowest", "MACs a second"):
        table.add_column(heading, justify="right")
    for one in measured["variants"]:
        table.add_row(
            format_macs(one["macs"]),
            f"{one['parameters']:,}",
            f"{one['milliseconds']:.3g}",
            f"{one['fastest_milliseconds']:.3g} to {one['slowest_milliseconds']:.3g}",
            format_macs(one["macs_per_second"]),
        )
    console.print(table)
    lines = [f"peak memory        {measured['peak_memory_megabytes']:.0f} MB of this process, torch included"]
    if "suggestion" in measured:
        suggestion = measured["suggestion"]
        lines.append(
            f"suggested budget   {suggestion['budget_macs']} MACs for {suggestion['target_milliseconds']:g} ms "
            f"an image; serves the network of {format_macs(suggestion['served_macs'])}"
        )
        lines.append(f'for a SuperNode    --node-config "budget-macs={suggestion["budget_macs"]}"')
    else:
        lines.append("for a budget       add --target-ms, the latency per image that the device should keep")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
