"""FEAST and FIARSE under other budgets and other data heterogeneity (Sec. 4.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfeast.evaluation import published
from fedfeast.studies.arms import LABELS, Arm, method_arm
from fedfeast.studies.plots import Plot
from fedfeast.studies.results import Measure, Outcome, Results, extreme
from fedfeast.studies.study import Findings, Resolve, Study
from fedfeast.studies.tables import Column, Row, Table

METHODS = ("feast", "fiarse")
Ranges = Mapping[str, tuple[float, float]]  # least and greatest by method
NOTE = "Compare Sec. 4.3 of the paper."


@dataclass(frozen=True)
class Sweep:
    """A sweep of both methods over one setting, read at the anchors."""

    name: str
    values: tuple[float, ...]
    paper_value: float  # that of the published main results

    def arm(self, method: str, value: float, settings: dict[str, Any]) -> Arm:
        """Return the arm of a method at a value."""
        return method_arm(method, settings, f"{self.name} {value:g}")

    def names(self, method: str) -> list[str]:
        """Return the names of a method's arms."""
        return [self.arm(method, value, {}).name for value in self.values]

    def table(self, results: Results, title: str) -> Table:
        """Return both methods' values at the anchors, and the change from the first to the last."""
        rows = []
        for method in METHODS:
            for value, arm in zip(self.values, self.names(method), strict=True):
                is_published = method == "feast" and value == self.paper_value
                papers = published.TRAINING_RULES.get(results.data, {}).get("full") if is_published else None
                change = results.cell(_change(results), arm)
                rows.append(Row(results.arms[arm].label, (*results.at_anchors(arm, papers), change)))
        columns = (*results.anchor_columns(), Column(_span(results)))
        name = f"{self.name}-anchors"
        return Table(name, title, "method", columns, tuple(rows), results.measured_in, NOTE)

    def extremes(self, results: Results, title: str, unit: str, measure: Measure, papers: Ranges) -> Table:
        """Return the least and greatest of a measure over the sweep."""
        rows = []
        for method in METHODS:
            least, greatest = papers.get(method, (None, None))
            ends = ((min, least), (max, greatest))
            cells = [results.cell(extreme(choose, measure), *self.names(method), paper=paper) for choose, paper in ends]
            rows.append(Row(LABELS[method], tuple(cells)))
        columns = (Column("least"), Column("greatest"))
        return Table(f"{self.name}-extremes", title, "method", columns, tuple(rows), unit, NOTE)

    def plot(self, results: Results, title: str) -> Plot:
        """Return both methods' curves, graded by the swept value."""
        lines = [
            results.line(arm, colour, dashed=method != "feast")
            for method in METHODS
            for colour, arm in enumerate(self.names(method))
        ]
        return results.plot(f"{self.name}-curves", title, "Solid: FEAST. Dashed: FIARSE.", lines, graded=True)


def _change(results: Results) -> Measure:
    """Return the measure of the change from the first to the last anchor."""

    def change(outcome: Outcome) -> float | None:
        first, last = (outcome.at(results.anchors[end].budget_macs) for end in (0, -1))
        return None if first is None or last is None else outcome.lead(last, first)

    return change


def _is_better(ours: Outcome, theirs: Outcome, budget_macs: float) -> bool:
    """Return whether one serves a budget better; nothing fits counts as what it does in scores."""
    values = [one.curve.client_values(np.array([budget_macs]))[0] for one in (ours, theirs)]
    return ours.lead(*values) > 0


def _span(results: Results) -> str:
    return f"{results.anchors[0].label} to {results.anchors[-1].label}"


def _points(results: Results) -> str:
    return "points" if results.metric.is_share else ""


ZIPF = Sweep("s", (0.8, 1.0, 1.2, 1.5), 1.2)
DIRICHLET = Sweep("alpha_eff", (0.225, 0.45, 1.35, 4.5), 0.45)  # the authors' alpha_data .05, .1, .3 and 1


def _zipf_arms(resolve: Resolve) -> list[Arm]:
    """Draw a population for every exponent."""
    # Choice: where the recipe has the paper's own draw, that is s = 1.2, and its runs are shared (docs/decisions/016).
    source = resolve({}).population.source

    def settings(exponent: float) -> dict[str, Any]:
        if source in ("paper", "authors") and exponent == ZIPF.paper_value:
            return {}
        if source == "authors":
            return {"population.exponent": exponent}
        return {"population.source": "zipf", "population.exponent": exponent}

    return [ZIPF.arm(method, value, settings(value)) for method in METHODS for value in ZIPF.values]


def _conclude_zipf(results: Results) -> Findings:
    papers = published.ZIPF_LARGEST.get(results.data, {})
    last = results.anchors[-1]
    largest = ZIPF.extremes(
        results,
        f"Test {results.metric.title} at {last.label}",
        results.metric.unit.strip(),
        lambda outcome: outcome.at(last.budget_macs),
        papers,
    )
    return Findings(
        (ZIPF.table(results, "Budgets from Zipf(s)"), largest), (ZIPF.plot(results, "Budgets from Zipf(s)"),)
    )


def _dirichlet_arms(resolve: Resolve) -> list[Arm]:
    def settings(value: float) -> dict[str, Any]:
        return {"partition.alpha_eff": value, "partition.alpha_data": None}

    return [DIRICHLET.arm(method, value, settings(value)) for method in METHODS for value in DIRICHLET.values]


def _conclude_dirichlet(results: Results) -> Findings:
    papers = published.DIRICHLET_CHANGES.get(results.data, {})
    budgets = [anchor.budget_macs for anchor in results.anchors]

    def won(*outcomes: Outcome) -> float:
        """Return at how many anchors of all settings FEAST is better."""
        middle = len(DIRICHLET.values)
        pairs = list(zip(outcomes[:middle], outcomes[middle:], strict=True))
        return float(sum(_is_better(ours, theirs, one) for ours, theirs in pairs for one in budgets))

    arms = [name for method in METHODS for name in DIRICHLET.names(method)]
    wins = Table(
        "alpha_eff-wins",
        f"Matched anchors, of {len(budgets) * len(DIRICHLET.values)}, at which FEAST beats FIARSE",
        "",
        (Column("won", 0),),
        (Row("FEAST", (results.cell(won, *arms, paper=published.DIRICHLET_WINS.get(results.data)),)),),
        note=NOTE,
    )
    return Findings(
        (
            DIRICHLET.table(results, "Data divided with alpha_eff"),
            DIRICHLET.extremes(results, f"Change from {_span(results)}", _points(results), _change(results), papers),
            wins,
        ),
        (DIRICHLET.plot(results, "Data divided with alpha_eff"),),
    )


ZIPF_SENSITIVITY = Study(
    "zipf-sensitivity",
    "Sensitivity to the budgets (Sec. 4.3)",
    "Does FEAST hold when more or fewer clients are weak?",
    _zipf_arms,
    _conclude_zipf,
    ("population.source", "population.exponent"),
)
DIRICHLET_SENSITIVITY = Study(
    "dirichlet-sensitivity",
    "Sensitivity to data heterogeneity (Sec. 4.3)",
    "Does FEAST hold when clients' data are more or less alike?",
    _dirichlet_arms,
    _conclude_dirichlet,
    ("partition.alpha_eff", "partition.alpha_data"),
)
