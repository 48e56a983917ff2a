"""What training costs, by plans alone: communication, computation and footprint (Sec. 4.3)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedfeast.evaluation import published
from fedfeast.federation import Client
from fedfeast.federation.pacing import TRAINING_FACTOR
from fedfeast.planning.outline import Cost, Outline, outline
from fedfeast.planning.plan import count_examples, plan_compute, plan_stated, plan_traffic
from fedfeast.randomness import named_generator
from fedfeast.recipes import Recipe
from fedfeast.studies.arms import BASELINES, LABELS, method_arm
from fedfeast.studies.results import Measure, Outcome, Results, extreme, published_of
from fedfeast.studies.study import Findings, Study
from fedfeast.studies.tables import Cell, Column, Row, Table

METHODS = ("feast", *BASELINES)
TRAFFIC_HEADINGS = {
    "supernet": "whole network (M)",
    "mean": "mean payload (M)",
    "reduction": "in all, times less",
    "client mean": "a client: mean",
    "median": "median",
    "max": "most",
}


def _traffic(recipe: Recipe) -> dict[str, float]:
    built = outline(recipe)
    traffic = plan_traffic(built)
    of_clients = traffic["per_client_reduction"]
    return {
        "supernet": built.method.network.layout.num_parameters / 1e6,
        "mean": traffic["mean_payload_parameters"] / 1e6,
        "reduction": traffic["reduction"],
        "client mean": of_clients["mean"],
        "median": of_clients["median"],
        "max": of_clients["max"],
    }


def _conclude_communication(results: Results) -> Findings:
    traffic = {outcome.seed: _traffic(outcome.recipe) for outcome in results.outcomes}
    papers = published.COMMUNICATION.get(results.data, {})

    def read(key: str) -> Measure:
        return lambda outcome: traffic[outcome.seed][key]

    cells = tuple(results.cell(read(key), "feast", paper=papers.get(key)) for key in TRAFFIC_HEADINGS)
    title = "Parameters sent to a client, and how many times less than the whole network"
    columns = tuple(map(Column, TRAFFIC_HEADINGS.values()))
    note = "Compare Sec. 4.3 of the paper; one way, averaged over all clients."
    return Findings((Table("communication", title, "method", columns, (Row("FEAST", cells),), note=note),))


def logical_pmacs(built: Outline) -> float:
    """Return training PMACs as if a masked network cost what its client affords, and no more than the whole."""
    recipe, whole = built.recipe, built.method.operating_points()[-1].price
    participants = list(built.participants)
    costs = np.minimum(built.population.budgets_macs[participants], whole)
    visits = built.rounds_per_client * recipe.training.local_epochs
    return float(TRAINING_FACTOR * visits * (count_examples(built)[participants] @ costs) / 1e15)


@dataclass(frozen=True, eq=False)
class Costs:
    """What a recipe asks of its clients; parameters in millions."""

    recipe: Recipe
    built: Outline

    @classmethod
    def of(cls, recipe: Recipe) -> "Costs":
        """Outline the recipe's federation."""
        return cls(recipe, outline(recipe))

    @cached_property
    def payload(self) -> float:
        """What the clients that are sent most receive."""
        return max(group.largest_payload for group in self.built.groups) / 1e6

    @property
    def deployed(self) -> float:
        """The largest served network."""
        return self.built.method.operating_points()[-1].parameters / 1e6

    @cached_property
    def compute(self) -> dict[str, float]:
        """Training PMACs, also with the largest variant alone."""
        return plan_compute(self.built)

    @cached_property
    def stated(self) -> dict[str, float] | None:
        """The same as a cache's makers count, where it says how."""
        return plan_stated(self.built)

    @cached_property
    def logical_pmacs(self) -> float:
        """Training PMACs if masks saved the computing that they mask."""
        return logical_pmacs(self.built)

    def sent_within(self, budgets_macs: Sequence[float]) -> dict[float, float]:
        """Return what clients of these budgets are sent to train; those that take no part are left out."""
        method = self.built.method
        cohort = [
            Client(index, "", budget, num_examples=1)
            for index, budget in enumerate(budgets_macs)
            if method.trains(budget)
        ]
        if not cohort:
            return {}
        # One cohort: a method that ranks its weights does so once.
        flat = method.network.initial_weights(named_generator(self.recipe.seed, "weights"))
        generator = named_generator(self.recipe.seed, "plan")
        assignments, _ = method.plan_round(method.initial_state(), flat, cohort, 0, generator)
        return {one.client.budget_macs: one.slice_map.payload / 1e6 for one in assignments}

    def served_within(self, budgets_macs: Sequence[float]) -> dict[float, float]:
        """Return the parameters of the largest networks that these budgets are served, as far as there are any."""
        points = self.built.method.operating_points()
        served = {budget: [one for one in points if one.price <= budget] for budget in budgets_macs}
        return {budget: within[-1].parameters / 1e6 for budget, within in served.items() if within}

    def client_ratios(self) -> NDArray[np.float64]:
        """Return every client's training compute over that of its largest network alone."""
        cost: Cost | None = None
        stated = {variant.architecture: variant.stated_macs for variant in self.built.cache}
        if self.built.cache.is_priced and None not in stated.values():
            cost = lambda one: float(stated[one] or 0)  # noqa: E731 - one of two
        ratios = [
            np.full(
                len(group.clients),
                group.pass_macs(self.built.method, cost) / group.largest_macs(self.built.method, cost),
            )
            for group in self.built.groups
        ]
        return np.concatenate(ratios)


Of = Callable[[Outcome], Costs]


def _conclude_footprint(results: Results) -> Findings:
    costs = {(outcome.arm.name, outcome.seed): Costs.of(outcome.recipe) for outcome in results.outcomes}

    def of(outcome: Outcome) -> Costs:
        return costs[outcome.arm.name, outcome.seed]

    return Findings(
        (
            _footprint(results, of),
            *_at_anchors(results, of),
            _client_compute(results, of),
        )
    )


def _footprint(results: Results, of: Of) -> Table:
    """Return what is trained and deployed, and how much computing FEAST takes beside each baseline."""
    data = results.data
    ratios, pmacs = published.COMPUTE_RATIOS, published.BASELINE_PMACS
    has_stated = all(of(outcome).stated is not None for outcome in results.of("feast"))

    def total(outcome: Outcome, key: str = "training_pmacs") -> float:
        """Return what stands beside the paper's number: counted by stated MACs where a cache has them."""
        stated = of(outcome).stated
        return (of(outcome).compute if stated is None else stated)[key]

    def alone(outcome: Outcome) -> float:
        return total(outcome, "single_variant_pmacs")

    paper = published.TRAINING_PMACS.get(data)
    rows = [
        Row(
            "FEAST",
            (
                results.cell(lambda one: of(one).payload, "feast", paper=published.ENVELOPE_MILLIONS.get(data)),
                results.cell(lambda one: of(one).deployed, "feast", paper=published.DEPLOYED_MILLIONS.get(data)),
                results.cell(total, "feast", paper=paper),
                Cell(),
            ),
        ),
        Row(
            "FEAST, largest variant alone",
            (
                Cell(),
                Cell(),
                results.cell(alone, "feast", paper=published.SINGLE_PMACS.get(data)),
                results.cell(lambda one: total(one) / alone(one), "feast", paper=published_of(ratios, data, "single")),
            ),
        ),
    ]
    if has_stated:
        true = results.cell(lambda one: of(one).compute["training_pmacs"], "feast")
        rows.append(Row("FEAST, by true MACs", (Cell(), Cell(), true, Cell())))
    for baseline in BASELINES:
        cells = (
            results.cell(lambda one: of(one).payload, baseline),
            results.cell(lambda one: of(one).deployed, baseline),
            results.cell(total, baseline, paper=published_of(pmacs, data, baseline)),
            results.cell(
                lambda feast, one: total(feast) / total(one),
                "feast",
                baseline,
                paper=published_of(ratios, data, baseline),
            ),
        )
        rows.append(Row(LABELS[baseline], cells))
    logical = published_of(pmacs, data, "fiarse, logical")
    rows.append(
        Row(
            "FIARSE, if masks saved computing",
            (
                Cell(),
                Cell(),
                results.cell(lambda one: of(one).logical_pmacs, "fiarse", paper=logical),
                results.cell(
                    lambda feast, one: total(feast) / of(one).logical_pmacs,
                    "feast",
                    "fiarse",
                ),
            ),
        )
    )
    least, greatest = published.BASELINE_PAYLOAD_MILLIONS.get(data, (None, None))
    for label, choose, limit in (("the baselines' least", min, least), ("the baselines' greatest", max, greatest)):
        payload = results.cell(extreme(choose, lambda one: of(one).payload), *BASELINES, paper=limit)
        rows.append(Row(label, (payload, Cell(), Cell(), Cell())))
    headings = ("largest payload (M)", "deployed model (M)", "training PMACs", "FEAST's compute over it")
    note = "Compare Sec. 4.3 of the paper; PMACs are forward and backward, of all rounds" + (
        ", and by the MACs that the cache states unless said." if has_stated else "."
    )
    return Table("footprint", "Training and deployment", "method", tuple(map(Column, headings)), tuple(rows), note=note)


def _at_anchors(results: Results, of: Of) -> list[Table]:
    """Return the parameters that a client of each anchor's budget is sent to train, and is served in the end."""
    data, last = results.data, results.anchors[-1]

    budgets = [anchor.budget_macs for anchor in results.anchors]
    Read = Callable[[Costs, Sequence[float]], dict[float, float]]

    def table(name: str, title: str, read: Read, papers: Mapping[str, float]) -> Table:
        found = {(one.arm.name, one.seed): read(of(one), budgets) for one in results.outcomes}

        def measure(budget_macs: float) -> Measure:
            return lambda outcome: found[outcome.arm.name, outcome.seed].get(budget_macs)

        rows = []
        for method in METHODS:
            cells = []
            for anchor in results.anchors:
                is_published = method == "feast" and anchor is last and last.of_the_paper
                paper = papers.get(data) if is_published else None
                cells.append(results.cell(measure(anchor.budget_macs), method, paper=paper))
            rows.append(Row(LABELS[method], tuple(cells)))
        note = (
            "Compare Sec. 4.3 of the paper, which has the last of FEAST's; a dash: nothing fits this budget. FIARSE's "
            "masked networks are kept whole."
        )
        return Table(name, title, "method", results.anchor_columns(), tuple(rows), "millions of parameters", note)

    return [
        table(
            "footprint-sent",
            "Sent to a client that affords each anchor",
            Costs.sent_within,
            published.ENVELOPE_MILLIONS,
        ),
        table("footprint-served", "Served at each anchor", Costs.served_within, published.DEPLOYED_MILLIONS),
    ]


def _client_compute(results: Results, of: Of) -> Table:
    """Return how much more a client computes with FEAST than with its largest network alone."""
    least, greatest = published.CLIENT_COMPUTE.get(results.data, (None, None))
    columns = {"least": (np.min, least), "median": (np.median, None), "mean": (np.mean, None)}
    columns["greatest"] = (np.max, greatest)
    cells = [
        results.cell(lambda one, choose=choose: float(choose(of(one).client_ratios())), "feast", paper=paper)
        for choose, paper in columns.values()
    ]
    return Table(
        "client-compute",
        "A client's training compute over that of its largest network alone",
        "method",
        tuple(map(Column, columns)),
        (Row("FEAST", tuple(cells)),),
        note="Forward passes of one example in a local step, times as much as one pass through the largest network.",
    )


COMMUNICATION = Study(
    "communication",
    "Communication (Sec. 4.3)",
    "How much less does routing send than the whole network?",
    lambda resolve: (method_arm("feast"),),
    _conclude_communication,
    trains=False,
)
FOOTPRINT = Study(
    "footprint",
    "Computation and footprint (Sec. 4.3)",
    "What does training FEAST cost, and what is deployed in the end?",
    lambda resolve: tuple(map(method_arm, METHODS)),
    _conclude_footprint,
    trains=False,
)
