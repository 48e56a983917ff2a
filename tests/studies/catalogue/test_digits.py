"""Every method learns on the digits: the study in a shorter form."""

from pathlib import Path

import pytest

from fedfeast.methods import METHODS
from fedfeast.studies import StudyOptions, StudyResult, conclude_study, plan_study, train_study
from fedfeast.studies.catalogue.digits import DIGITS, LEARNED

ROUNDS = 20
# One network a client and round: these reach LEARNED in the study's 60 rounds, and are only well above chance here.
SLOW = {"superfednas": 20.0, "deepfednas": 20.0}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    plan = plan_study(DIGITS, tmp_path_factory.mktemp("studies") / "digits", StudyOptions(rounds=ROUNDS))
    train_study(plan)
    return conclude_study(plan)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(method: str, result: StudyResult) -> None:
    (outcome,) = result.results.of(method)
    assert outcome.largest >= SLOW.get(method, LEARNED)


def test_the_table_has_every_method(result: StudyResult, tmp_path: Path) -> None:
    (table,) = result.findings.tables
    assert len(table.rows) == len(METHODS)
    assert not table.published
    assert all("SuperFedNAS" in note or "DeepFedNAS" in note for note in result.findings.notes)
    assert len(result.findings.plots[0].lines) == len(METHODS)
