"""Training rules at the five anchors: FEAST's own components and its federated-NAS predecessors (Sec. 4.3)."""

from collections.abc import Mapping, Sequence

from fedfeast.evaluation import published
from fedfeast.studies.arms import Arm, method_arm
from fedfeast.studies.results import Results
from fedfeast.studies.study import Findings, Study
from fedfeast.studies.tables import Row, Table

RULES = {
    "global-min": "Global min. only",
    "local-max": "Local max. only",
    "min-max": "Global min. + local max.",
    "min-max-distilled": "Global min. + local max. + KD",
    "full": "Full FEAST",
}
RULE_ARMS = tuple(Arm(rule, label, {"method.name": "feast", "method.rule": rule}) for rule, label in RULES.items())

# Choice: only the constrained transfers use our budgets and allocation (docs/decisions/016). The others have their own
# papers' division: Dirichlet(.1) over clients, nobody beyond an equal share.
UNCONSTRAINED = {
    "method.constrained": False,
    "population.gamma": 0.0,
    "partition.alpha_eff": None,
    "partition.alpha_data": None,
    "partition.alpha_client": 0.1,
}
CONSTRAINED = {"method.constrained": True}
NAS_ARMS = (
    method_arm("superfednas", UNCONSTRAINED, "unconstrained"),
    method_arm("deepfednas", UNCONSTRAINED, "unconstrained"),
    method_arm("superfednas", CONSTRAINED, "constrained"),
    method_arm("deepfednas", CONSTRAINED, "constrained"),
    method_arm("feast"),
)


def _at_anchors(results: Results, name: str, title: str, papers: Mapping[str, Sequence[float]], note: str) -> Findings:
    rows = tuple(Row(arm.label, results.at_anchors(key, papers.get(key))) for key, arm in results.arms.items())
    lines = [results.line(key, colour, published=papers.get(key)) for colour, key in enumerate(results.arms)]
    what = f"Test {results.metric.title} of every cached variant"
    caption = f"{what}; diamonds are the paper's numbers at the anchors."
    return Findings(
        (Table(name, title, "training rule", results.anchor_columns(), rows, results.measured_in, note),),
        (results.plot(name, title, caption, lines),),
    )


def _conclude_rules(results: Results) -> Findings:
    papers = published.TRAINING_RULES.get(results.data, {})
    return _at_anchors(results, "training-rules", "FEAST's training rules", papers, "Compare Table 2 of the paper.")


def _conclude_nas(results: Results) -> Findings:
    papers = published.FEDERATED_NAS.get(results.data, {})
    note = (
        "Compare Table 3 of the paper; only constrained transfers use our client budgets and allocation, the others "
        "Dirichlet(0.1) over clients with equal shares."
    )
    return _at_anchors(results, "federated-nas", "Federated NAS in FEAST's space", papers, note)


TRAINING_RULES = Study(
    "table2-training-rules",
    "Training rules (Table 2)",
    "What does each part of FEAST's local training add?",
    lambda resolve: RULE_ARMS,
    _conclude_rules,
)
FEDERATED_NAS = Study(
    "table3-federated-nas",
    "Federated NAS (Table 3)",
    "Do the training procedures of SuperFedNAS and DeepFedNAS carry over to the wider space?",
    lambda resolve: NAS_ARMS,
    _conclude_nas,
    ("population.gamma", "partition.alpha_eff", "partition.alpha_data", "partition.alpha_client"),
)
