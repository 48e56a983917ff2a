"""Pieces of Markdown."""

from collections.abc import Iterable, Sequence


def heading(level: int, text: str) -> str:
    """Return a heading."""
    return f"{'#' * level} {text}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, a row a line."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(text: str) -> str:
    """Return words that stand in a table as they are: no other markup, no further column."""
    return " ".join(text.replace("|", "\\|").replace("*", "\\*").replace("<", "\\<").split())
