"""Tables as values: our numbers, the paper's and the difference, ready for a terminal, CSV, LaTeX and HTML."""

import csv
import io
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfeast.whole_files import write_text

EN_DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    MINUS: "$-$",
    EN_DASH: "--",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


@dataclass(frozen=True)
class Estimate:
    """A number measured once, or its mean and sample standard deviation over several seeds."""

    mean: float
    spread: float | None = None
    count: int = 1

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Estimate | None":
        """Return the estimate from one value a seed; None where any seed has none."""
        numbers = [value for value in values if value is not None]
        if not numbers or len(numbers) < len(values):
            return None
        spread = statistics.stdev(numbers) if len(numbers) > 1 else None
        return cls(statistics.fmean(numbers), spread, len(numbers))


@dataclass(frozen=True)
class Cell:
    """Our number and the published one, as far as there are any; or words in their place."""

    ours: Estimate | None = None
    paper: float | None = None
    words: str = ""

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.ours is None or self.paper is None else self.ours.mean - self.paper

    def values(self) -> dict[str, float | int | str | None]:
        """Return the cell for programs."""
        ours = self.ours
        return {
            "ours": (self.words or None) if ours is None else ours.mean,
            "spread": None if ours is None else ours.spread,
            "seeds": None if ours is None else ours.count,
            "paper": self.paper,
            "difference": self.difference,
        }


@dataclass(frozen=True)
class Column:
    """A heading, and the decimals of the numbers below it."""

    heading: str
    digits: int = 2

    def ours(self, cell: Cell) -> str:
        """Return our number for people, with its spread over several seeds, or the words that stand there."""
        if cell.words:
            return cell.words
        if cell.ours is None or cell.ours.spread is None:
            return self.number(None if cell.ours is None else cell.ours.mean)
        finer = Column(self.heading, max(1, self.digits))  # a mean of counts is no count
        return f"{finer.number(cell.ours.mean)} \N{PLUS-MINUS SIGN} {finer.number(cell.ours.spread)}"

    def number(self, value: float | None, sign: str = "") -> str:
        """Return a number for people; an en dash where there is none."""
        return EN_DASH if value is None else f"{value:{sign},.{self.digits}f}".replace("-", MINUS)


@dataclass(frozen=True)
class Row:
    """One line of numbers."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells below headings; a unit is that of all numbers."""

    name: str  # of its files
    title: str
    heading: str  # of the labels
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    unit: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        assert all(len(row.cells) == len(self.columns) for row in self.rows), f"{self.name} has ragged rows"

    @property
    def seeds(self) -> int:
        """The number of seeds behind its numbers."""
        return max((cell.ours.count for cell in self._cells() if cell.ours is not None), default=1)

    @property
    def full_title(self) -> str:
        """The title with the unit and, for several seeds, what the numbers are."""
        facts = [self.unit] if self.unit else []
        if self.seeds > 1:
            facts.append(f"mean \N{PLUS-MINUS SIGN} standard deviation over {self.seeds} seeds")
        return f"{self.title} ({'; '.join(facts)})" if facts else self.title

    @property
    def published(self) -> bool:
        """Whether the paper has any of its numbers."""
        return any(cell.paper is not None for cell in self._cells())

    def header(self) -> list[str]:
        """Return the headings of the lines."""
        return [self.heading, *([""] if self.published else []), *(column.heading for column in self.columns)]

    def lines(self) -> list[list[str]]:
        """Return the rows as text: a line each, or three where the paper has any of the row's numbers."""
        if not self.published:
            return [[row.label, *(column.ours(cell) for column, cell in self._pairs(row))] for row in self.rows]
        lines = []
        for row in self.rows:
            pairs = list(self._pairs(row))
            lines.append([row.label, "ours", *(column.ours(cell) for column, cell in pairs)])
            if any(cell.paper is not None for cell in row.cells):
                lines.append(["", "paper", *(column.number(cell.paper) for column, cell in pairs)])
                lines.append(["", "difference", *(column.number(cell.difference, "+") for column, cell in pairs)])
        return lines

    def to_csv(self) -> str:
        """Return one line a cell."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([self.heading or "row", "column", "unit", *Cell().values()])
        for row in self.rows:
            for column, cell in self._pairs(row):
                writer.writerow([row.label, column.heading, self.unit, *cell.values().values()])
        return text.getvalue()

    def to_markdown(self) -> str:
        """Return the title, the table and its note in Markdown."""
        header = self.header()
        rules = ["---"] * (len(header) - len(self.columns)) + ["---:"] * len(self.columns)
        lines = (f"| {' | '.join(_escape_bars(cell) for cell in line)} |" for line in (header, rules, *self.lines()))
        return "\n\n".join(part for part in (f"{self.full_title}:", "\n".join(lines), self.note) if part) + "\n"

    def to_latex(self) -> str:
        """Return a table in the manner of booktabs."""
        body: list[str] = []
        for line in self.lines():
            if body and self.published and line[1] == "ours":
                body.append(r"\addlinespace")
            body.append(_latex_line(line))
        labels = len(self.header()) - len(self.columns)
        caption = f"{self.full_title}. {self.note}".strip()
        return "\n".join(
            [
                r"% needs \usepackage{booktabs}",
                r"\begin{table}[t]",
                r"\centering",
                rf"\begin{{tabular}}{{{'l' * labels}{'r' * len(self.columns)}}}",
                r"\toprule",
                _latex_line(self.header()),
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                rf"\caption{{{escape_latex(caption)}}}",
                rf"\label{{tab:{self.name}}}",
                r"\end{table}",
                "",
            ]
        )

    def to_tree(self) -> dict[str, Any]:
        """Return the table as plain values."""
        return {
            "name": self.name,
            "title": self.title,
            "unit": self.unit,
            "note": self.note,
            "columns": [column.heading for column in self.columns],
            "rows": [{"label": row.label, "cells": [cell.values() for cell in row.cells]} for row in self.rows],
        }

    def _cells(self) -> Iterable[Cell]:
        return (cell for row in self.rows for cell in row.cells)

    def _pairs(self, row: Row) -> Iterator[tuple[Column, Cell]]:
        return zip(self.columns, row.cells, strict=True)


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write every table as CSV, LaTeX and Markdown; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for table in tables:
        for suffix, text in ((".csv", table.to_csv()), (".tex", table.to_latex()), (".md", table.to_markdown())):
            files.append(folder / f"{table.name}{suffix}")
            write_text(files[-1], text)
    return files


def _escape_bars(text: str) -> str:
    return text.replace("|", "\\|")


def escape_latex(text: str) -> str:
    """Return text that LaTeX prints as it stands here."""
    return "".join(LATEX.get(character, character) for character in text)


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(map(escape_latex, cells)) + r" \\"
