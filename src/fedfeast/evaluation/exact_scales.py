"""pi and psi of nested envelopes, exactly: cohorts counted by how many examples they hold (Theorem 1)."""

from dataclasses import dataclass, replace
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfeast.errors import InvalidInput
from fedfeast.evaluation.exposure import Exposure

MOST_COUNTED = 200_000_000  # numbers in the table of cohorts; beyond that estimate_scales draws cohorts


@dataclass(frozen=True)
class EnvelopeScale:
    """One envelope of those that some clients receive and others do not."""

    routed_from: int  # affordable variants that a client needs
    num_routers: int  # clients that receive it
    coverage: float  # pi: the chance that a cohort holds one of them
    scale: float  # psi: the local steps that a round gives it, weighed as answers are; 0 where it covers it not


def nested_scales(exposure: Exposure, local_steps: ArrayLike, cohort_size: int) -> tuple[EnvelopeScale, ...]:
    """Return pi and psi of every set of clients that receives something the others do not, the fewest first."""
    steps = np.asarray(local_steps, dtype=np.float64)
    if steps.shape != exposure.affordable.shape:
        raise InvalidInput(f"There are {steps.size} numbers of local steps for {exposure.affordable.size} clients.")
    examples = np.rint(exposure.num_examples).astype(np.int64)
    taking_part = np.flatnonzero(exposure.affordable > 0)
    size = min(cohort_size, len(taking_part))
    if size < 1:
        raise InvalidInput("No client affords a variant: give a cache whose smallest variant fits some budget.")
    most = int(np.sort(examples[taking_part])[-size:].sum())
    if (size + 1) * (most + 1) > MOST_COUNTED:
        raise InvalidInput(
            f"cohorts of {size} clients with up to {most:,} examples are too many to count: plan without this table."
        )
    counted = _CohortTable.empty(size, most)
    scales: list[EnvelopeScale] = []
    added: set[int] = set()
    for pattern in sorted(np.unique(exposure.regions.routed_from).tolist(), reverse=True):
        # Routers are upper tails of the budgets (Prop. 1): the next envelope's are these and some more.
        routers = np.flatnonzero(exposure.affordable >= pattern).tolist()
        newcomers = [client for client in routers if client not in added]
        for client in newcomers:
            counted.add(int(examples[client]), float(steps[client]))
        added.update(newcomers)
        if newcomers:
            scales.append(EnvelopeScale(pattern, len(routers), *counted.read(len(taking_part), len(routers))))
        elif scales:  # the same clients from fewer variants on
            scales[-1] = replace(scales[-1], routed_from=pattern)
    return tuple(scales)


@dataclass(frozen=True, eq=False)
class _CohortTable:
    """Sets of the clients added so far, by how many they are and how many examples they hold together."""

    sets: NDArray[np.float64]  # (clients + 1, examples + 1) how many sets there are
    steps: NDArray[np.float64]  # the same, each set counted by the sum of n_i B_i

    @classmethod
    def empty(cls, size: int, most_examples: int) -> "_CohortTable":
        sets = np.zeros((size + 1, most_examples + 1))
        sets[0, 0] = 1
        return cls(sets, np.zeros_like(sets))

    def add(self, num_examples: int, local_steps: float) -> None:
        """Let every set that is not full be joined by one more client."""
        # The right side is made before anything changes, so that nobody joins twice.
        joined = self.sets[:-1, : self.sets.shape[1] - num_examples].copy()
        with_steps = self.steps[:-1, : self.sets.shape[1] - num_examples] + num_examples * local_steps * joined
        self.sets[1:, num_examples:] += joined
        self.steps[1:, num_examples:] += with_steps

    def read(self, num_clients: int, num_routers: int) -> tuple[float, float]:
        """Return pi and psi over uniform cohorts of all clients."""
        size = self.sets.shape[0] - 1
        cohorts = comb(num_clients, size)
        others = num_clients - num_routers
        coverage = 1 - comb(others, size) / cohorts
        totals = np.maximum(np.arange(self.sets.shape[1]), 1)
        means = (self.steps[1:] / totals).sum(axis=1)  # by the number of routers in a cohort
        chances = np.array([comb(others, size - number) / cohorts for number in range(1, size + 1)])
        return coverage, float(chances @ means)
