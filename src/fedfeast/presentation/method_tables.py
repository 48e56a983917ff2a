"""The methods as a list for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding


def print_methods(methods: Sequence[Mapping[str, Any]], recipe: str, console: Console) -> None:
    """Print each method's name, what it does, where it comes from, what it would serve and its options."""
    console.print(f"methods (method.name), with their operating points for {escape(recipe)}", highlight=False)
    for method in methods:
        budgets = "" if method["keeps_budgets"] else "; does not keep budgets"
        options = ", ".join(f"{name} = {value}" for name, value in method["options"].items())
        console.print(f"\n[bold]{method['name']}[/]", highlight=False)
        for line in (
            escape(method["summary"]),
            f"[dim]{escape(method['paper'])}[/]",
            f"{_points(method['operating_points'])}, of {method['parameters']:,} parameters{budgets}",
            f"[dim]options: {escape(options)}[/]",
        ):
            console.print(Padding(line, (0, 0, 0, 2)), highlight=False)


def _points(points: Sequence[Mapping[str, Any]]) -> str:
    """Name a few points, or the ends of many."""
    names = [point["name"] for point in points]
    if len(names) <= 5:
        return f"serves {', '.join(names)} MACs"
    return f"serves {len(names)} points from {names[0]} to {names[-1]} MACs"
