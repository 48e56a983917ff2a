"""FEAST+: what might make FEAST better within its own protocol, one change at a time."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from fedfeast.evaluation import published
from fedfeast.planning.plan import plan_compute
from fedfeast.recipes import Recipe
from fedfeast.studies.arms import Arm, method_arm
from fedfeast.studies.results import Outcome, Results
from fedfeast.studies.study import IMAGES, LETTER, Findings, Resolve, Study
from fedfeast.studies.tables import Cell, Column, Row, Table
from fedfeast.units import PMACS_UNITS, suited_unit

BRANCH_SCALES = (0.2, 0.1, 0.4)
LOOKAHEADS = (0.8, 0.9, 0.5)
WARMUP_SHARE = 0.05  # of the rounds
RATES = {"": 1.0, "-twice": 2.0, "-half": 0.5}  # of the recipe's learning rate
# What is set together in the arm of that name.
PLUS: Mapping[str, Any] = {"network.branch_scale": 0.2, "server.lookahead": 0.8}
SAME_SERVER = {"server.lookahead": 0.8}

VARIED = (
    *("network.branch_scale", "network.branch", "server", "training.learning_rate", "training.warmup_rounds"),
    *("training.class_prior", "training.local_epochs", "training.rounds", "augmentation.mixing_until"),
    "aggregation.activated_share",
)


def _arms(resolve: Resolve) -> list[Arm]:
    """Return the arms of the programme; their letters are its own."""
    base = resolve({})
    training, mixes = base.training, base.augmentation.mixing != "off"
    rate, rounds = training.learning_rate, training.rounds
    twice = {"training.learning_rate": 2 * rate}
    warmup = {"training.warmup_rounds": min(max(1, round(WARMUP_SHARE * rounds)), rounds - 1)}
    changes: dict[str, tuple[str, Mapping[str, Any]]] = {
        "plain": ("FEAST as published (J)", {}),
        "plus": ("FEAST+ (I)", PLUS),
        **{f"A-{one}": (f"A: branch scale {one}", {"network.branch_scale": one}) for one in BRANCH_SCALES},
        **{f"B-{one}": (f"B: lookahead {one}", {"server.lookahead": one}) for one in LOOKAHEADS},
        "C-rate": ("C: twice the rate", twice),
        "C-warmup": ("C: warm-up", warmup),
        "C-both": ("C: twice the rate after a warm-up", {**twice, **warmup}),
        "D": ("D: intermediates by 1/MACs", {"method.sampling": "inverse-macs"}),
        **({"E": ("E: plain images in the last quarter", {"augmentation.mixing_until": 0.75})} if mixes else {}),
        "F": ("F: answers by the activated share", {"aggregation.activated_share": True}),
        "G": ("G: signed branch", {"network.branch": "signed"}),
        "H-smallest": ("H: the smallest in half the steps", {"method.smallest_share": 0.5}),
        "H-half": ("H: students on half batches", {"method.student_batch": 0.5}),
        "H-both": ("H: both", {"method.smallest_share": 0.5, "method.student_batch": 0.5}),
        "average": ("average of the global vector", {"server.average": 0.99}),
        "prior": ("local class prior", {"training.class_prior": 1.0}),
        "epochs": (
            "two local epochs in half the rounds",
            {"training.local_epochs": 2, "training.rounds": max(1, rounds // 2)},
        ),
        "progressive": ("progressive start", {"method.progressive": 0.25}),
    }
    arms = [Arm(name, label, {"method.name": "feast", **own}) for name, (label, own) in changes.items()]
    for method in ("fiarse", "heterofl"):
        for suffix, factor in RATES.items():
            own = {**SAME_SERVER, "training.learning_rate": factor * rate}
            told = method_arm(method, own, f"the same server step, rate {factor * rate:g}")
            arms.append(Arm(f"K-{method}{suffix}", f"K: {told.label}", told.settings))
    return arms


def largest_dip(outcome: Outcome) -> float:
    """Return by how much a network is at most worse than the next smaller one, in points."""
    merits = [outcome.curve.metric.merit(outcome.curve.metric.shown(point.value)) for point in outcome.curve.points]
    return max((one - after for one, after in pairwise(merits)), default=0.0)


def _validated(outcome: Outcome) -> float | None:
    """Return the figure by which the served round was chosen."""
    score = None if outcome.run is None else outcome.run.summary.get("validation_score")
    return None if score is None else outcome.curve.metric.shown(score)


def _pmacs(recipe: Recipe) -> float:
    return plan_compute(recipe)["training_pmacs"]


def _conclude(results: Results) -> Findings:
    papers = published.TRAINING_RULES.get(results.data, {}).get("full")
    pmacs = {(one.arm.name, one.seed): _pmacs(one.recipe) for one in results.outcomes}
    unit, per_pmac = suited_unit(pmacs.values(), PMACS_UNITS)
    compute = {key: one / per_pmac for key, one in pmacs.items()}
    columns = (
        Column(f"validated{results.percent}"),
        Column(f"population score{results.percent}"),
        Column("largest dip"),
        Column(f"training {unit}"),
        Column(f"points a {unit[:-1]}", 3),
    )
    anchors, scores = [], []
    for arm in _arms(lambda _: results.base):
        if arm.name not in results.arms:
            scores.append(Row(f"{arm.label}: not run", (Cell(None),) * len(columns)))
            continue
        anchors.append(Row(arm.label, results.at_anchors(arm.name, papers if arm.name == "plain" else None)))
        cells = (
            results.cell(_validated, arm.name),
            results.cell(lambda one: one.score, arm.name),
            results.cell(largest_dip, arm.name),
            results.cell(lambda one: compute[one.arm.name, one.seed], arm.name),
            results.cell(lambda one: one.score / compute[one.arm.name, one.seed], arm.name),
        )
        scores.append(Row(arm.label, cells))
    lines = [results.line(name, colour) for colour, name in enumerate(results.arms)]
    note = "Changes are chosen by the validated score alone; the test set is looked at once, at the end."
    title = "FEAST and what was changed"
    return Findings(
        (
            Table("plus", title, "change", results.anchor_columns(), tuple(anchors), results.measured_in, note),
            Table("plus-scores", f"{title}: scores", "change", columns, tuple(scores), note=note),
        ),
        (results.plot("plus", title, note, lines),),
    )


PLUS_STUDY = Study(
    "plus",
    "FEAST+: one change at a time",
    "What makes FEAST better with the same clients, budgets, data and payloads, and at most its training compute?",
    _arms,
    _conclude,
    VARIED,
    datasets=tuple(dataset for dataset in IMAGES if dataset != LETTER),
    separable=True,
)
