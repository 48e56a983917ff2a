"""What commands say: results for people or as JSON, and what went wrong."""

import json
import re
import textwrap
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape


def console_for(as_json: bool, quiet: bool = False) -> Console:
    """Return where people read: standard error when standard output carries JSON."""
    return Console(stderr=as_json, quiet=quiet)


def show(console: Console, *parts: RenderableType) -> None:
    """Print parts one below the other; a string is a plain line that is never broken but for a narrow terminal."""
    for part in parts:
        if isinstance(part, str):
            text = fitted(part, console.width) if console.is_terminal else part
            console.print(text, highlight=False, markup=False, soft_wrap=True)
        else:
            console.print(part)


def fitted(line: str, width: int) -> str:
    """Break a line between words, what follows below its first value; lines that begin with spaces stay as they are."""
    label = re.match(r"\S[\w ]*?\s{2,}", line)
    indent = " " * label.end() if label else ""
    if len(line) <= width or line.startswith(" ") or 2 * len(indent) > width:
        return line
    return "\n".join(
        textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    )


def print_result(content: Any, parts: list[RenderableType], as_json: bool) -> None:
    """Print a result on standard output: its content as JSON for programs, or its parts for people."""
    if as_json:
        print(json.dumps(content, indent=2))
    else:
        show(Console(), *parts)


def print_error(error: object) -> None:
    """Print an error as one sentence on standard error."""
    _print_marked("[bold red]error:[/]", str(error))


def print_warning(text: str) -> None:
    """Print a warning on standard error."""
    _print_marked("[yellow]warning:[/]", text)


def _print_marked(mark: str, text: str) -> None:
    Console(stderr=True).print(f"{mark} {escape(text)}", soft_wrap=True, highlight=False)
