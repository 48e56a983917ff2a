import io

import pytest
from rich.console import Console, RenderableType

from fedfeast.studies.printing import PrintedTable, study_list
from fedfeast.studies.tables import Cell, Column, Estimate, Row, Table


def lines_of(part: RenderableType, width: int = 110) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width).print(part)
    return stream.getvalue().splitlines()


def test_every_study_is_listed() -> None:
    studies = [{"name": "one", "title": "Table 1", "question": "Why?"}, {"name": "two", "title": "", "question": ""}]
    text = "\n".join(lines_of(study_list(studies, ["one"])))
    assert "Why? Table 1; trains nothing" in text
    assert text.count("trains nothing") == 1


def test_rows_with_published_numbers_are_groups() -> None:
    def table(paper: float | None) -> Table:
        rows = [Row(label, (Cell(Estimate(1.0), paper),)) for label in ("FEAST", "FedAvg")]
        return Table("one", "a [title]", "method", (Column("[25M]"),), tuple(rows), note="a [note]")

    grouped, flat = (lines_of(PrintedTable(table(paper))) for paper in (2.0, None))
    assert "a [title]" in grouped[0]
    assert "a [note]" in grouped[-1]
    assert "[25M]" in grouped[2]
    assert sum(line.startswith("\N{BOX DRAWINGS LIGHT VERTICAL AND RIGHT}") for line in grouped) == 1
    assert not any(line.startswith("\N{BOX DRAWINGS LIGHT VERTICAL AND RIGHT}") for line in flat)


def test_a_table_without_rows_is_its_headings() -> None:
    assert "validated" in "\n".join(lines_of(PrintedTable(Table("none", "None", "change", (Column("validated"),), ()))))


@pytest.mark.parametrize("width", [40, 44, 60, 80, 200])
def test_no_number_is_cut_however_narrow_the_terminal(width: int) -> None:
    cells = tuple(Cell(Estimate(*one, 3)) for one in ((98.76, 0.79), (97.94, 0.3), (460221.066, 77712.081)))
    columns = (Column("validated (%)"), Column("population score (%)"), Column("points a PMAC", 3))
    rows = tuple(Row(label, cells) for label in ("FEAST as published (J)", "two local epochs in half the rounds"))
    table = Table("plus", "FEAST and what was changed", "change", columns, rows, note="A note.")
    lines = lines_of(PrintedTable(table), width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    for number in ("98.76", "0.79", "97.94", "0.30", "460,221.066", "77,712.081"):
        assert text.count(number) == 2
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert any("98.76 \N{PLUS-MINUS SIGN} 0.79" in line for line in lines) == (width not in (60, 80)), (
        "a spread stands below its mean where a line is too narrow for both"
    )
