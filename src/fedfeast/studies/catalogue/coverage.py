"""How often each part of the network is sent and how much it is trained: pi and psi of Theorem 1, by plans alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedfeast.data import count_steps
from fedfeast.evaluation import published
from fedfeast.evaluation.exact_scales import EnvelopeScale, nested_scales
from fedfeast.evaluation.exposure import Exposure
from fedfeast.evaluation.slice_regions import cut_regions
from fedfeast.methods import Feast
from fedfeast.planning.outline import outline
from fedfeast.planning.plan import count_examples
from fedfeast.recipes import Recipe
from fedfeast.studies.arms import method_arm
from fedfeast.studies.results import Measure, Outcome, Results
from fedfeast.studies.study import Findings, Study
from fedfeast.studies.tables import Column, Row, Table
from fedfeast.units import format_macs


@dataclass(frozen=True)
class Coverage:
    """The nested envelopes of a federation, the one with the fewest clients first."""

    scales: tuple[EnvelopeScale, ...]
    prices: tuple[int, ...]  # of the cached variants
    data_shares: tuple[float, ...]  # of the examples, that the clients of each envelope hold

    @classmethod
    def of(cls, recipe: Recipe) -> "Coverage":
        """Draw the shards and count all cohorts."""
        built = outline(recipe)
        method, training = built.method, recipe.training
        assert isinstance(method, Feast)
        examples = count_examples(built)
        exposure = Exposure.of(
            cut_regions(method.network, method.cache), method.cache, built.population.budgets_macs, examples
        )
        batching = (training.batch_size, training.local_epochs, training.last_batch, training.least_distinct)
        steps = [count_steps(int(np.ceil(number)), *batching) for number in examples]
        scales = nested_scales(exposure, steps, training.clients_per_round)
        shares = [float(examples[exposure.affordable >= one.routed_from].sum() / examples.sum()) for one in scales]
        return cls(scales, tuple(variant.price for variant in method.cache), tuple(shares))

    def budget_of(self, position: int) -> int:
        """Return the least budget that is sent an envelope."""
        return self.prices[self.scales[position].routed_from - 1]


Read = Callable[[Coverage, int], float]
COLUMNS: dict[str, tuple[Read, int]] = {
    "routed clients": (lambda coverage, position: float(coverage.scales[position].num_routers), 0),
    "share of the data": (lambda coverage, position: coverage.data_shares[position], 3),
    "pi": (lambda coverage, position: coverage.scales[position].coverage, 5),
    "psi": (lambda coverage, position: coverage.scales[position].scale, 3),
}


def _conclude(results: Results) -> Findings:
    data = results.data
    coverages = {outcome.seed: Coverage.of(outcome.recipe) for outcome in results.outcomes}
    (first, *_) = coverages.values()

    def at(read: Read, position: int) -> Measure:
        def value(outcome: Outcome) -> float | None:
            coverage = coverages[outcome.seed]
            # Another seed may draw a population with other envelopes.
            return read(coverage, position) if len(coverage.scales) == len(first.scales) else None

        return value

    def of_all(read: Read, choose: Callable[[Sequence[float]], float]) -> Measure:
        return lambda outcome: choose(
            [read(coverages[outcome.seed], place) for place in range(len(coverages[outcome.seed].scales))]
        )

    rows = [
        Row(
            f"from {format_macs(first.budget_of(position))}",
            tuple(results.cell(at(read, position), "feast") for read, _ in COLUMNS.values()),
        )
        for position in range(len(first.scales))
    ]
    envelopes = Table(
        "envelopes",
        "Nested envelopes: who is sent them, how often a round covers them, and how much it trains them",
        "budget",
        tuple(Column(heading, digits) for heading, (_, digits) in COLUMNS.items()),
        tuple(rows),
        note="pi: the chance that a cohort holds a client that is sent it. psi: the sum of beta_i B_i, exactly, by "
        "counting cohorts; a round that does not cover it counts as 0.",
    )
    papers = {
        "routed clients": published.ROUTED_CLIENTS.get(data, (None, None)),
        "pi": published.ENVELOPE_COVERAGE.get(data, (None, None)),
        "psi": published.ENVELOPE_SCALES.get(data, (None, None)),
    }
    number = results.cell(
        lambda outcome: float(len(coverages[outcome.seed].scales)), "feast", paper=published.NESTED_ENVELOPES.get(data)
    )
    ends: tuple[tuple[str, Callable[[Sequence[float]], float]], ...] = (("least", min), ("greatest", max))
    limits = []
    for place, (label, choose) in enumerate(ends):
        cells = [
            results.cell(of_all(COLUMNS[heading][0], choose), "feast", paper=ends_of[place])
            for heading, ends_of in papers.items()
        ]
        limits.append(Row(label, (number, *cells)))
    summary = Table(
        "coverage",
        "Coverage and scales of Theorem 1",
        "",
        (Column("envelopes", 0), *(Column(heading, COLUMNS[heading][1]) for heading in papers)),
        tuple(limits),
        note="Not printed in the paper: beside ours stands what the rule of its authors' scripts, implemented a second "
        "time, gives for their cache and budgets from 25M on (--dataset cifar100-authors --set "
        "population.least_macs=25e6). psi is least where everybody shares a position.",
    )
    return Findings((summary, envelopes))


COVERAGE = Study(
    "coverage",
    "Coverage and computation scales (Theorem 1)",
    "How often is each nested part of the network trained, and with how many local steps?",
    lambda resolve: (method_arm("feast"),),
    _conclude,
    trains=False,
)
