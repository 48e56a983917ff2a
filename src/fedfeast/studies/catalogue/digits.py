"""Every method on the embedded digits: a few minutes on two cores, and nothing to download."""

from fedfeast.methods import METHODS
from fedfeast.studies.arms import method_arm
from fedfeast.studies.catalogue.baselines import curves
from fedfeast.studies.results import Outcome, Results
from fedfeast.studies.study import Findings, Study
from fedfeast.studies.tables import Column, Row, Table

LEARNED = 80.0  # % at the largest point


def _payload(outcome: Outcome) -> float:
    assert outcome.run is not None
    return float(outcome.run.summary["traffic"]["mean_payload_parameters"]) / 1e3


def _seconds(outcome: Outcome) -> float:
    assert outcome.run is not None
    return float(outcome.run.summary["training_seconds"])


def _conclude(results: Results) -> Findings:
    rows, behind = [], []
    for name, arm in results.arms.items():
        cells = (
            results.cell(lambda outcome: outcome.score, name),
            results.cell(lambda outcome: outcome.smallest, name),
            results.cell(lambda outcome: outcome.largest, name),
            results.cell(lambda outcome: float(len(outcome.curve.points)), name),
            results.cell(_payload, name),
            results.cell(_seconds, name),
        )
        rows.append(Row(arm.label, cells))
        if any(outcome.largest < LEARNED for outcome in results.of(name)):
            behind.append(arm.label)
    columns = (
        Column("score (%)"),
        Column("smallest (%)"),
        Column("largest (%)"),
        Column("points", 0),
        Column("payload (k)", 1),
        Column("training (s)", 1),
    )
    note = "The population score, the smallest and the largest point's test accuracy, the mean payload in parameters."
    return Findings(
        (Table("methods", "Every method on the handwritten digits", "method", columns, tuple(rows), note=note),),
        (curves(results, "methods"),),
        (f"Below {LEARNED:g} % at the largest point: {', '.join(behind)}.",) if behind else (),
    )


DIGITS = Study(
    "digits-all",
    "Every method on the digits",
    "Does every method learn, side by side, on data that need no download?",
    lambda resolve: tuple(map(method_arm, METHODS)),
    _conclude,
    datasets=("digits",),
)
