"""What studies say on a terminal: their tables, and the list of them all."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import rich.table
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.text import Text

from fedfeast.studies.tables import Table


def study_list(studies: Sequence[Mapping[str, Any]], idle: Collection[str]) -> rich.table.Table:
    """Show every study with its question; those that are idle train nothing."""
    table = rich.table.Table("study", "what it asks", title="fedfeast study NAME")
    for one in studies:
        note = "; trains nothing" if one["name"] in idle else ""
        table.add_row(one["name"], f"{one['question']} [dim]{one['title']}{note}[/]")
    return table


@dataclass(frozen=True)
class PrintedTable:
    """A table in a form that cuts no number on a narrow terminal."""

    table: Table

    @cached_property
    def _header(self) -> list[str]:
        return self.table.header()

    @cached_property
    def _lines(self) -> list[list[str]]:
        return self.table.lines()

    @property
    def _num_labels(self) -> int:
        return len(self._header) - len(self.table.columns)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table with every cell on one line, else with spreads below their means, else number by number."""
        labels, borders = self._num_labels, 3 * len(self._header) + 1
        columns = list(zip(*self._lines, strict=True)) or [()] * len(self._header)
        words = [
            max(len(word) for cell in (heading, *column) for word in _words(cell))
            for heading, column in zip(self._header, columns, strict=True)
        ]
        whole = [max([word, *map(len, column)]) for word, column in zip(words, columns, strict=True)]
        spare = options.max_width - borders - sum(words)
        if sum(whole) + borders <= options.max_width:
            yield self._table(whole)
        elif spare >= 0:
            for position in range(labels):
                gained = min(whole[position] - words[position], spare)
                words[position] += gained
                spare -= gained
            yield self._table(words)
        else:
            yield from self._paragraphs()

    def _table(self, widths: Sequence[int]) -> rich.table.Table:
        table = rich.table.Table(title=escape(self.table.full_title), caption=escape(self.table.note) or None)
        labels = self._num_labels
        for position, (heading, width) in enumerate(zip(self._header, widths, strict=True)):
            side: Literal["left", "right"] = "left" if position < labels else "right"
            table.add_column(escape(heading), justify=side, min_width=width, max_width=width)
        for line, following in pairwise([*self._lines, ["end"]]):
            numbers = zip(line[labels:], widths[labels:], strict=True)
            cells = [cell if len(cell) <= width else "\n".join(_words(cell)) for cell, width in numbers]
            is_last = self.table.published and bool(following[0])
            table.add_row(*map(escape, [*line[:labels], *cells]), end_section=is_last)
        return table

    def _paragraphs(self) -> Iterator[Text]:
        labels = self._num_labels
        yield Text(self.table.full_title, style="italic")
        for line in self._lines:
            yield Text(" ".join(filter(None, line[:labels])), style="bold")
            for heading, cell in zip(self._header[labels:], line[labels:], strict=True):
                if cell:
                    yield Text(f"  {heading}: {cell}")
        if self.table.note:
            yield Text(self.table.note, style="dim")


def _words(cell: str) -> list[str]:
    """Return the parts of a cell that are not broken: words, and a spread with its sign."""
    return cell.replace("\N{PLUS-MINUS SIGN} ", "\N{PLUS-MINUS SIGN}\N{NO-BREAK SPACE}").split(" ")
