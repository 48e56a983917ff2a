"""FEAST beside the weight-sharing methods: scores, curves, equal compute, serving density (Secs. 4.2 and 4.3)."""

from dataclasses import replace

import numpy as np

from fedfeast.evaluation import Curve, count_client_wins, published
from fedfeast.planning.outline import outline
from fedfeast.planning.plan import plan_compute
from fedfeast.recipes import Recipe
from fedfeast.studies.arms import BASELINES, LABELS, Arm, method_arm
from fedfeast.studies.catalogue.costs import logical_pmacs
from fedfeast.studies.plots import Plot
from fedfeast.studies.results import Outcome, Results, capital, extreme, published_of
from fedfeast.studies.study import Findings, Resolve, Study
from fedfeast.studies.tables import Cell, Column, Row, Table
from fedfeast.units import PMACS_UNITS, suited_unit

METHODS = (*BASELINES, "feast")
DENSITY_RIVALS = ("heterofl", "scalefl")
LOGICAL = "logical match"


def _score(outcome: Outcome) -> float:
    return outcome.score


def _lead(feast: Outcome, *baselines: Outcome) -> float:
    """Return FEAST's population score less that of the strongest baseline."""
    return feast.lead(feast.score, *(baseline.score for baseline in baselines))


def _wins(feast: Outcome, baseline: Outcome) -> float:
    """Return on how many clients FEAST serves better."""
    return float(count_client_wins(feast.curve, baseline.curve, feast.budgets_macs).wins)


def curves(results: Results, name: str) -> Plot:
    """Return all arms' curves on shared axes, with the paper's FEAST where it is known."""
    feast = published.TRAINING_RULES.get(results.data, {}).get("full")
    return results.plot(
        name,
        f"{capital(results.metric.title)} at every measured operating point",
        f"Test {results.metric.title} over inference cost. Lines connect measured points only to guide the eye; points "
        "in the shaded part lie below the range in which all methods are compared. Dotted lines are the anchors.",
        [results.line(arm, published=feast if arm == "feast" else None) for arm in results.arms],
    )


def _conclude_population(results: Results) -> Findings:
    data = results.data
    scores = [
        results.cell(_score, method, paper=published_of(published.POPULATION_SCORES, data, method))
        for method in METHODS
    ]
    margin = results.cell(_lead, "feast", *BASELINES, paper=published.MARGINS.get(data))
    population = Table(
        "population",
        f"Population-averaged test {results.metric.title} under largest-affordable serving",
        "data set",
        (*(Column(LABELS[method]) for method in METHODS), Column("FEAST's margin")),
        (Row(data, (*scores, margin)),),
        results.metric.unit.strip(),
        "Compare Table 1 of the paper; the margin is that over the strongest baseline.",
    )
    wins = Table(
        "client-wins",
        f"Clients, of {results.num_clients}, that FEAST serves better",
        "data set",
        tuple(Column(f"than {LABELS[baseline]}", digits=0) for baseline in BASELINES),
        (Row(data, tuple(results.cell(_wins, "feast", baseline) for baseline in BASELINES)),),
    )
    best = Table(
        "population-best",
        f"Population-averaged test {results.metric.title}, each client with the best point it affords",
        "data set",
        tuple(Column(LABELS[method]) for method in METHODS),
        (Row(data, tuple(results.cell(lambda outcome: outcome.best_score, method) for method in METHODS)),),
        results.metric.unit.strip(),
        "The paper's text serves the largest affordable point; its authors' code scores by the best one.",
    )
    return Findings((population, wins, best), (curves(results, "population"),))


def _conclude_curves(results: Results) -> Findings:
    data = results.data
    feast = published.TRAINING_RULES.get(data, {}).get("full", ())
    papers = {
        "feast": (
            feast[0] if feast else None,
            feast[-1] if feast else None,
            published.PEAKS.get(data),
            published.CHANGES.get(data),
        )
    }
    columns = {
        "smallest compared point": results.first_compared,
        "largest point": lambda outcome: outcome.largest,
        "best point": lambda outcome: outcome.best,
        "smallest to largest": results.change,
    }
    rows = []
    for method in METHODS:
        beside = papers.get(method, (None,) * len(columns))
        cells = [
            results.cell(measure, method, paper=paper) for measure, paper in zip(columns.values(), beside, strict=True)
        ]
        rows.append(Row(LABELS[method], tuple(cells)))
    least, greatest = published.BASELINE_CHANGES.get(data, (None, None))
    for label, choose, paper in (("the baselines' least", min, least), ("the baselines' greatest", max, greatest)):
        change = results.cell(extreme(choose, results.change), *BASELINES, paper=paper)
        rows.append(Row(label, (Cell(), Cell(), Cell(), change)))
    note = "Compare Figure 2 of the paper and Sec. 4.2; methods are compared from the smallest cached variant on."
    table = Table(
        "curves",
        f"{capital(results.metric.title)} along the curve",
        "method",
        tuple(map(Column, columns)),
        tuple(rows),
        results.measured_in,
        note,
    )
    return Findings((table,), (curves(results, "curves"),))


def _equal_compute_arms(resolve: Resolve) -> list[Arm]:
    """Give every baseline as many rounds as FEAST's training MACs pay for."""
    feast = resolve(method_arm("feast").settings)

    def scaled(method: str, pmacs: float, suffix: str = "") -> Arm:
        rounds = max(1, round(feast.training.rounds * _training_pmacs(feast) / pmacs))
        return method_arm(method, {"training.rounds": rounds}, suffix)

    recipes = {baseline: resolve(method_arm(baseline).settings) for baseline in BASELINES}
    return [
        *(scaled(baseline, _training_pmacs(recipe)) for baseline, recipe in recipes.items()),
        scaled("fiarse", logical_pmacs(outline(recipes["fiarse"])), LOGICAL),
        method_arm("feast"),
    ]


def _training_pmacs(recipe: Recipe) -> float:
    return plan_compute(recipe)["training_pmacs"]


def _conclude_equal_compute(results: Results) -> Findings:
    data, rows = results.data, []
    unit, per_pmac = suited_unit((_training_pmacs(outcome.recipe) for outcome in results.outcomes), PMACS_UNITS)
    for method, arm in results.arms.items():
        score = results.cell(_score, method, paper=published_of(published.EQUAL_COMPUTE_SCORES, data, method))
        lead, wins = Cell(), Cell()
        if method != "feast":
            paper = published_of(published.EQUAL_COMPUTE_LEADS, data, method)
            lead = results.cell(_lead, "feast", method, paper=paper)
            wins = results.cell(
                _wins, "feast", method, paper=None if paper is None else published.EQUAL_COMPUTE_WINS.get(data)
            )
        rounds = results.cell(lambda outcome: float(outcome.recipe.training.rounds), method)
        compute = results.cell(lambda outcome: _training_pmacs(outcome.recipe) / per_pmac, method)
        rows.append(Row(arm.label, (rounds, compute, score, lead, wins)))
    columns = (
        Column("rounds", 0),
        Column(f"training {unit}"),
        Column(f"population score{results.percent}"),
        Column("FEAST's lead"),
        Column(f"clients won by FEAST, of {results.num_clients}", 0),
    )
    note = (
        "Compare Sec. 4.3 of the paper; a baseline's rounds follow from the ratio of training MACs, with their cosine. "
        f"FIARSE, {LOGICAL}: as if its masks saved the computing that they mask; MACs are dense ones."
    )
    table = Table("equal-compute", "Equal training compute", "method", columns, tuple(rows), note=note)
    return Findings((table,), (curves(results, "equal-compute"),))


def restrict(feast: Curve, baseline: Curve, budgets_macs: np.ndarray) -> Curve:
    """Keep, for each of the baseline's tiers that serve a client, FEAST's largest point within its least budget."""
    least: dict[int, float] = {}
    for budget in budgets_macs.tolist():
        tier = baseline.serve(budget)
        if tier is not None:
            least[tier.price] = min(budget, least.get(tier.price, budget))
    kept = {feast.serve(budget) for budget in least.values()}
    return replace(feast, points=tuple(point for point in feast.points if point in kept))


def _conclude_density(results: Results) -> Findings:
    def aligned(feast: Outcome, baseline: Outcome) -> Curve:
        return restrict(feast.curve, baseline.curve, feast.budgets_macs)

    def restricted(feast: Outcome, baseline: Outcome) -> float:
        curve = aligned(feast, baseline)
        return curve.metric.shown(curve.population_score(feast.budgets_macs))

    def kept(feast: Outcome, baseline: Outcome) -> float | None:
        margin = feast.score - baseline.score
        return 100 * (restricted(feast, baseline) - baseline.score) / margin if margin else None

    data, rows = results.data, []
    for baseline in DENSITY_RIVALS:
        pair = ("feast", baseline)
        gain = published_of(published.DENSITY_GAINS, data, baseline)
        scores = {method: published_of(published.POPULATION_SCORES, data, method) for method in pair}
        cells = (
            results.cell(lambda *both: float(len(aligned(*both).points)), *pair),
            results.cell(_score, baseline, paper=scores[baseline]),
            results.cell(restricted, *pair),
            results.cell(_score, "feast", paper=scores["feast"]),
            results.cell(lambda feast, other: feast.lead(feast.score, restricted(feast, other)), *pair, paper=gain),
            results.cell(kept, *pair, paper=published_of(published.MARGINS_KEPT, data, baseline)),
        )
        rows.append(Row(f"aligned with {LABELS[baseline]}", cells))
    columns = (
        Column("FEAST's points", 0),
        Column(f"baseline's score{results.percent}"),
        Column(f"FEAST, restricted{results.percent}"),
        Column(f"FEAST, full cache{results.percent}"),
        Column("full cache adds"),
        Column("margin kept (%)"),
    )
    note = (
        "Compare Sec. 4.2 of the paper. For each tier that serves somebody, FEAST keeps the largest cached point "
        "at or below the smallest budget of that tier."
    )
    return Findings(
        (Table("density", "FEAST restricted to a baseline's tiers", "points", columns, tuple(rows), note=note),)
    )


def _all_methods(resolve: Resolve) -> list[Arm]:
    return list(map(method_arm, METHODS))


POPULATION = Study(
    "table1-population",
    "Population scores (Table 1)",
    "What does the average client get from each method when it is served the largest model it affords?",
    _all_methods,
    _conclude_population,
)
CURVES = Study(
    "figure2-curves",
    "Accuracy-MACs curves (Figure 2)",
    "How good is every size that each method can serve?",
    _all_methods,
    _conclude_curves,
)
EQUAL_COMPUTE = Study(
    "equal-compute",
    "Equal training compute (Sec. 4.3)",
    "Does FEAST still lead when its baselines train as many MACs as it does?",
    _equal_compute_arms,
    _conclude_equal_compute,
    ("training.rounds",),
)
DENSITY = Study(
    "serving-density",
    "Serving density (Sec. 4.2)",
    "How much of FEAST's margin comes from having more sizes to serve?",
    lambda resolve: list(map(method_arm, (*DENSITY_RIVALS, "feast"))),
    _conclude_density,
)
