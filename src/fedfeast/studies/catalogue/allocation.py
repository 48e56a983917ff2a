"""What the allocation of data to budgets does: gamma from 0 to 1.5 (Figure 1, Sec. 4.2)."""

from fedfeast.evaluation import published
from fedfeast.studies.arms import BASELINES, LABELS, Arm, method_arm
from fedfeast.studies.results import Outcome, Results, capital, published_of
from fedfeast.studies.study import Findings, Resolve, Study
from fedfeast.studies.tables import Cell, Column, Row, Table

GAMMAS = (0.0, 0.25, 0.5, 1.0, 1.5)
ENDS = (0.0, 1.0)  # the allocations that the baselines are trained with too
METHODS = ("feast", *BASELINES)


def _arm(method: str, gamma: float) -> Arm:
    return method_arm(method, {"population.gamma": gamma}, f"gamma {gamma:g}")


def _arms(resolve: Resolve) -> list[Arm]:
    return [
        *(_arm("feast", gamma) for gamma in GAMMAS),
        *(_arm(baseline, gamma) for baseline in BASELINES for gamma in ENDS),
    ]


def _largest(outcome: Outcome) -> float:
    return outcome.largest


def _gain(before: Outcome, after: Outcome) -> float:
    return after.lead(after.largest, before.largest)


def _lead(feast: Outcome, *baselines: Outcome) -> float:
    return feast.lead(feast.largest, *map(_largest, baselines))


def _conclude(results: Results) -> Findings:
    data = results.data

    def name(method: str, gamma: float) -> str:
        return _arm(method, gamma).name

    def cell(method: str, gamma: float) -> Cell:
        if name(method, gamma) not in results.arms:
            return Cell()
        paper = published_of(published.LARGEST_BY_GAMMA, data, gamma) if method == "feast" else None
        return results.cell(_largest, name(method, gamma), paper=paper)

    rows = []
    for method in METHODS:
        paper = published_of(published.GAMMA_GAINS, data, method)
        gain = results.cell(_gain, *(name(method, gamma) for gamma in ENDS), paper=paper)
        rows.append(Row(LABELS[method], (*(cell(method, gamma) for gamma in GAMMAS), gain)))
    leads = []
    for gamma in ENDS:
        paper = published_of(published.LEADS_BY_GAMMA, data, gamma)
        leads.append(results.cell(_lead, *(name(method, gamma) for method in METHODS), paper=paper))
    gaps = []
    for method in METHODS:
        papers = published.GAMMA_GAPS.get(data, {}) if method == "feast" else {}
        cells = [
            results.cell(results.change, name(method, gamma), paper=papers.get(gamma))
            if name(method, gamma) in results.arms
            else Cell()
            for gamma in GAMMAS
        ]
        gaps.append(Row(LABELS[method], tuple(cells)))
    points = "points" if results.metric.is_share else ""
    tables = (
        Table(
            "gamma",
            f"{capital(results.metric.title)} of each method's largest point",
            "method",
            (*(Column(f"gamma {gamma:g}") for gamma in GAMMAS), Column("from 0 to 1")),
            tuple(rows),
            results.measured_in,
            "Compare Figure 1 of the paper and Sec. 4.2; the baselines are trained at gamma 0 and 1.",
        ),
        Table(
            "gamma-leads",
            "FEAST's lead over the strongest baseline, each at its largest point",
            "allocation",
            (Column("lead"),),
            tuple(Row(f"gamma {gamma:g}", (lead,)) for gamma, lead in zip(ENDS, leads, strict=True)),
            points,
            "Compare Sec. 4.2 of the paper.",
        ),
        Table(
            "gamma-gaps",
            "By how much the largest network is better than the smallest",
            "method",
            tuple(Column(f"gamma {gamma:g}") for gamma in GAMMAS),
            tuple(gaps),
            points,
            "Compare the end of Sec. 3.4 of the paper; methods are compared from the smallest cached variant on.",
        ),
    )
    caption = "Gamma 0 gives every client the same expected share of the data, gamma 1 one in proportion to its budget."
    by_method = [
        results.line(name(method, gamma), dashed=gamma == 0).starting_at(results.cached_macs[0])
        for method in METHODS
        for gamma in reversed(ENDS)
    ]
    of_feast = [results.line(name("feast", gamma), colour) for colour, gamma in enumerate(GAMMAS)]
    return Findings(
        tables,
        (
            results.plot("gamma-methods", "Data independent of budgets and in proportion to them", caption, by_method),
            results.plot("gamma-feast", "FEAST from gamma 0 to 1.5", caption, of_feast, graded=True),
        ),
    )


GAMMA = Study(
    "figure1-gamma",
    "Allocation (Figure 1)",
    "What does it do to large models when data follow budgets?",
    _arms,
    _conclude,
    ("population.gamma",),
)
