import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.evaluation.differences import IN_THEIR_CODE
from fedfeast.studies import StudyOptions, StudyPlan, StudyResult
from fedfeast.studies.catalogue.rules import TRAINING_RULES
from fedfeast.studies.report import describe_result, notes_of, write_study_report
from fedfeast.studies.results import Outcome, Results
from fedfeast.studies.study import Findings
from fedfeast.studies.tables import Cell


@pytest.fixture
def result(tmp_path: Path) -> StudyResult:
    """Return a study of made-up curves on the paper's data set, with fewer rounds than the paper's."""
    options = StudyOptions(rounds=100, seeds=(0, 1))
    base = options.recipe(TRAINING_RULES, {})
    macs = (24_967_328, 50_233_664, 228_658_432, 407_722_496, 595_791_168)
    outcomes = tuple(
        Outcome(arm, seed, base, Curve(tuple(CurvePoint("", one, 1, 0.5 + 0.1 * seed) for one in macs)), np.ones(2))
        for arm in TRAINING_RULES.arms(lambda settings: base)
        for seed in options.seeds
    )
    results = Results(base, outcomes)
    plan = StudyPlan(TRAINING_RULES, base, (), options, tmp_path / "study")
    return StudyResult(plan, results, TRAINING_RULES.conclude(results))


def test_the_page_states_the_protocol_and_sets_numbers_beside_the_papers(result: StudyResult) -> None:
    page = write_study_report(result)[0].read_text()
    for part in (
        "Training rules (Table 2)",
        "100 rounds of 10 clients",
        "100 clients as the authors drew them, budgets from Zipf(1.2); gamma 1",
        "The published figures belong to 4000 rounds; here every run had 100",
        "training.rounds = 100 instead of 4000",
        "mean ± standard deviation over 2 seeds",
        "Full FEAST",
        "55.00 ± 7.07",
        "71.82",
        "−9.89",  # noqa: RUF001 - 55.00 less 64.89
        "[population]",
    ):
        assert part in page, part
    assert page.count('data-chart="chart-') == 1


def test_published_figures_lead_to_the_reasons_for_a_difference(result: StudyResult) -> None:
    page = write_study_report(result)[0].read_text()
    assert page.count('href="#differences"') == 2, "one of the table, one of the figure"
    assert page.count('id="differences"') == 1
    assert "commit dbc4630" in page
    assert all(str(escape(one.name)) in page for one in IN_THEIR_CODE)
    assert "<code>partition.loaded</code>" in page
    assert notes_of(result)[-1] == "Why figures may differ from the paper's: docs/differences.md."


def test_where_nothing_is_published_nothing_is_explained(result: StudyResult, tmp_path: Path) -> None:
    (table,) = result.findings.tables
    alone = tuple(replace(row, cells=tuple(Cell(cell.ours) for cell in row.cells)) for row in table.rows)
    (plot,) = result.findings.plots
    lines = tuple(replace(line, published=()) for line in plot.lines)
    findings = Findings((replace(table, rows=alone),), (replace(plot, lines=lines),))
    page = write_study_report(replace(result, findings=findings))[0].read_text()
    assert "#differences" not in page
    assert "dbc4630" not in page


def test_the_page_is_self_contained_and_its_links_lead_to_files_beside_it(result: StudyResult) -> None:
    files = write_study_report(result)
    addresses = re.findall(r'(?:src|href)="([^"#][^"]*)"', files[0].read_text())
    assert sorted(addresses) == [
        "pictures/training-rules.png",
        "pictures/training-rules.svg",
        "tables/training-rules.csv",
        "tables/training-rules.md",
        "tables/training-rules.tex",
    ]
    assert all((files[0].parent / address).is_file() for address in addresses)
    assert {file.relative_to(files[0].parent).as_posix() for file in files[1:]} == set(addresses)


def test_the_result_for_programs(result: StudyResult) -> None:
    content = describe_result(result, write_study_report(result))
    assert content["study"] == "table2-training-rules"
    assert content["protocol"]["seeds"] == "0, 1"
    cell = content["tables"][0]["rows"][-1]["cells"][0]
    assert cell["ours"] == pytest.approx(55)
    assert cell["seeds"] == 2
    assert cell["difference"] == pytest.approx(55 - 64.89)
    assert content["curves"][0]["lines"][0]["points"][0]["accuracy"] == pytest.approx(55)
    assert Path(content["report"]).is_file()
