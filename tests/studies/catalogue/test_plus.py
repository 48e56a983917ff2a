"""FEAST+: what each arm changes, some of them trained on the digits for two rounds, the others said to be not run."""

from pathlib import Path

import pytest
from tiny import TINY

from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.recipes import load_recipe
from fedfeast.studies import StudyOptions, conclude_study, find_study, plan_study, train_study
from fedfeast.studies.arms import Arm
from fedfeast.studies.catalogue.plus import PLUS_STUDY, largest_dip
from fedfeast.studies.results import Outcome

SETTINGS = {
    **TINY,
    "training.clients_per_round": 2,
    "training.batch_size": 64,
    "data.validation_examples": 40,
    "data.calibration_examples": 20,
    "augmentation.mixing": "alternate",
}
BASE = load_recipe("cifar100-paper", {"training.rounds": 1000})
ARMS = {arm.name: arm for arm in PLUS_STUDY.arms(lambda _: BASE)}


def test_the_programme_has_an_arm_for_every_letter() -> None:
    assert {name[0] for name in ARMS if name[0].isupper()} == set("ABCDEFGHK")
    assert {"plain", "plus"} <= ARMS.keys()  # I and J with --seeds 1
    assert ARMS["plain"].settings == {"method.name": "feast"}
    assert ARMS["C-both"].settings["training.learning_rate"] == 2 * BASE.training.learning_rate
    assert ARMS["C-both"].settings["training.warmup_rounds"] == 50
    assert ARMS["epochs"].settings["training.rounds"] == 500
    assert ARMS["K-fiarse-half"].settings["training.learning_rate"] == BASE.training.learning_rate / 2


def test_arms_are_trained_one_at_a_time_and_the_others_are_said_to_be_not_run(tmp_path: Path) -> None:
    arms = ("plain", "C-both", "D", "E", "F", "H-both", "prior", "epochs", "progressive")
    options = StudyOptions("digits", 2, settings=SETTINGS, runs=tmp_path / "runs", arms=arms)
    plan = plan_study(PLUS_STUDY, tmp_path / "plus", options)
    assert [run.arm.name for run in plan.runs] == list(arms)
    train_study(plan)
    anchors, scores, pairs = conclude_study(plan).findings.tables
    assert len(pairs.rows) == len(arms) - 1
    assert len(anchors.rows) == len(arms)
    by_label = {row.label: row for row in scores.rows}
    assert len(by_label) == len(ARMS)
    assert by_label["B: lookahead 0.8: not run"].cells[0].ours is None
    measured = [row.cells for row in scores.rows if row.cells[0].ours is not None]
    assert len(measured) == len(arms)
    assert all(cell.ours is not None for cells in measured for cell in cells)
    pmacs = {label: row.cells[3].ours.mean for label, row in by_label.items() if row.cells[3].ours is not None}
    plain = pmacs[ARMS["plain"].label]
    assert all(pmacs[ARMS[name].label] < plain for name in ("D", "H-both", "progressive"))
    assert pmacs[ARMS["epochs"].label] == pytest.approx(plain)


def test_arms_that_are_none_and_studies_that_need_all_of_theirs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--arm 'Z' is none of study plus: choose from plain, plus, A-0\.2"):
        plan_study(PLUS_STUDY, tmp_path, StudyOptions("digits", arms=("Z",)))
    with pytest.raises(InvalidInput, match="--arm 'feast': study weighting compares all of its arms"):
        plan_study(find_study("weighting"), tmp_path, StudyOptions("digits", arms=("feast",)))


def test_a_dip_is_between_neighbouring_sizes() -> None:
    values = (0.5, 0.7, 0.69, 0.72, 0.7, 0.71)
    points = tuple(CurvePoint(str(place), place + 1, 1, value) for place, value in enumerate(values))
    outcome = Outcome(Arm("plain", "plain", {}), 0, BASE, Curve(points))
    assert largest_dip(outcome) == pytest.approx(2.0)
