import csv
import io
import re
from pathlib import Path

import pytest

from fedfeast.studies.tables import Cell, Column, Estimate, Row, Table, escape_latex, write_tables

TABLE = Table(
    "scores",
    "Scores",
    "method",
    (Column("25M"), Column("wins", 0)),
    (
        Row("FEAST", (Cell(Estimate(66.5), 67.74), Cell(Estimate(1234.0)))),
        Row("HeteroFL & co_1", (Cell(None, 41.5), Cell())),
        Row("ours alone", (Cell(Estimate(-1.0)), Cell())),
    ),
    "%",
    "A note.",
)


def test_an_estimate_is_the_mean_and_the_sample_standard_deviation() -> None:
    assert Estimate.of([3.0]) == Estimate(3.0)
    several = Estimate.of([1.0, 2.0, 3.0])
    assert several is not None
    assert (several.mean, several.spread, several.count) == (2.0, 1.0, 3)
    assert Estimate.of([1.0, None]) is None
    assert Estimate.of([]) is None


def test_ours_the_papers_and_the_difference_stand_below_each_other() -> None:
    assert TABLE.header() == ["method", "", "25M", "wins"]
    assert TABLE.lines() == [
        ["FEAST", "ours", "66.50", "1,234"],
        ["", "paper", "67.74", "–"],  # noqa: RUF001
        ["", "difference", "−1.24", "–"],  # noqa: RUF001
        ["HeteroFL & co_1", "ours", "–", "–"],  # noqa: RUF001
        ["", "paper", "41.50", "–"],  # noqa: RUF001
        ["", "difference", "–", "–"],  # noqa: RUF001
        ["ours alone", "ours", "−1.00", "–"],  # noqa: RUF001
    ]


def test_without_anything_published_a_row_is_a_line() -> None:
    table = Table("t", "T", "method", (Column("score"),), (Row("FEAST", (Cell(Estimate(1.0)),)),))
    assert table.header() == ["method", "score"]
    assert table.lines() == [["FEAST", "1.00"]]


def test_several_seeds_show_mean_and_spread_and_their_number() -> None:
    estimate = Estimate.of([60.0, 62.0])
    counts = Estimate.of([3.0, 4.0])
    columns = (Column("25M"), Column("wins", 0))
    table = Table("t", "T", "method", columns, (Row("FEAST", (Cell(estimate, 61.5), Cell(counts))),), "%")
    assert table.lines()[0] == ["FEAST", "ours", "61.00 ± 1.41", "3.5 ± 0.7"]
    assert table.lines()[2][2] == "−0.50"  # noqa: RUF001
    assert table.full_title == "T (%; mean ± standard deviation over 2 seeds)"
    assert TABLE.full_title == "Scores (%)"


def test_csv_has_a_line_a_cell() -> None:
    rows = list(csv.DictReader(io.StringIO(TABLE.to_csv())))
    assert len(rows) == 6
    assert rows[0]["method"] == "FEAST"
    assert (rows[0]["column"], rows[0]["unit"], rows[0]["ours"], rows[0]["paper"]) == ("25M", "%", "66.5", "67.74")
    assert float(rows[0]["difference"]) == pytest.approx(-1.24)
    assert (rows[2]["ours"], rows[2]["paper"], rows[2]["difference"]) == ("", "41.5", "")


def test_latex_is_booktabs_and_escaped() -> None:
    text = TABLE.to_latex()
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}{llrr}", r"\label{tab:scores}"):
        assert part in text
    assert r"HeteroFL \& co\_1 & ours & -- & -- \\" in text
    assert r"& difference & $-$1.24 & -- \\" in text
    assert r"\caption{Scores (\%). A note.}" in text
    assert text.count(r"\addlinespace") == 2
    assert text.isascii()
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {3}


def test_latex_escapes_every_special_character() -> None:
    assert escape_latex("a_b & 5 % $ # {x} ~ ^ \\") == (
        r"a\_b \& 5 \% \$ \# \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )


def test_the_tree_and_the_files(tmp_path: Path) -> None:
    tree = TABLE.to_tree()
    assert tree["columns"] == ["25M", "wins"]
    assert tree["rows"][0]["cells"][0]["paper"] == 67.74
    files = write_tables([TABLE], tmp_path / "tables")
    assert [file.name for file in files] == ["scores.csv", "scores.tex", "scores.md"]
    assert files[1].read_text() == TABLE.to_latex()
    assert files[2].read_text() == TABLE.to_markdown()
