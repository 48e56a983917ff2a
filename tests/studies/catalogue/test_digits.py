"""Every method learns on the digits: the study with tiny networks and fewer rounds."""

import pytest
from tiny import TINY

from fedfeast.methods import METHODS
from fedfeast.studies import StudyOptions, StudyResult, conclude_study, plan_study, train_study
from fedfeast.studies.arms import LABELS
from fedfeast.studies.catalogue.digits import DIGITS, LEARNED

ROUNDS = 20
SETTINGS = {**TINY, "training.batch_size": 16, "evaluation.every_rounds": ROUNDS}
# One network a client and round, several widths of one network, and the smallest network for all: these come to
# LEARNED later, and stand far above the 10 % of chance here.
SLOW = {
    "superfednas": 60.0,
    "deepfednas": 60.0,
    "fjord": 60.0,
    "nested": 60.0,
    "depthfl": 60.0,
    "splitmix": 60.0,
    "fedavg": 50.0,
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    plan = plan_study(
        DIGITS, tmp_path_factory.mktemp("studies") / "digits", StudyOptions(rounds=ROUNDS, settings=SETTINGS)
    )
    train_study(plan)
    return conclude_study(plan)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(method: str, result: StudyResult) -> None:
    (outcome,) = result.results.of(method)
    assert outcome.largest >= SLOW.get(method, LEARNED)


def test_the_table_has_every_method(result: StudyResult) -> None:
    table, pairs = result.findings.tables
    assert len(table.rows) == len(METHODS)
    assert len(pairs.rows) == len(result.pairs) == len(METHODS) - 1, "each beside FEAST"
    assert not table.published
    behind = [LABELS[name] for name in METHODS if result.results.of(name)[0].largest < LEARNED]
    told = [note for note in result.findings.notes if note.startswith("Below")]
    assert all(label in note for note in told for label in behind)
    assert len(told) == bool(behind)
    assert len(result.findings.plots[0].lines) == len(METHODS)
