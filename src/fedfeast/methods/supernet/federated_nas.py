"""SuperFedNAS and DeepFedNAS: one network a client and round, merged with most weight on the largest."""

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import cos, pi
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, OperatingPoint, Parts, State
from fedfeast.methods.one_pass import OnePassMethod
from fedfeast.methods.served_variants import Sampling, cached_points, draw_place
from fedfeast.methods.tiers import Weighting, weight_of
from fedfeast.networks import Architecture, ElasticNetwork, ElasticResNet
from fedfeast.routing import LeadingSlices, SliceMap
from fedfeast.variants import VariantCache, draw_architectures


@dataclass(frozen=True)
class FederatedNas(OnePassMethod):
    """Of each cohort one client trains the largest network, one the smallest, the others networks drawn at random."""

    plans_differ: ClassVar = True
    plans_by_weights: ClassVar = False
    presets: ClassVar = {
        "authors": {"first_weight": 0.9, "last_weight": 0.125, "annealed_share": 0.8, "weighting": "samples"},
        "released": {"first_weight": 0.9, "annealed_share": 0.8, "weighting": "count"},
    }
    former_defaults: ClassVar = {"weighting": "count"}
    network: ElasticNetwork
    cache: VariantCache
    rounds: int
    constrained: bool = True  # clients train only what they can afford
    first_weight: float = 0.9  # of the largest network's answer in the first round
    annealed_share: float = 0.8  # of the rounds, after which the largest network's answer weighs its last
    last_weight: float | None = None  # of the largest network's answer; without it an equal share
    weighting: Weighting = "samples"  # by which the shares above are multiplied

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return the method on the elastic network."""
        return cls(parts.elastic, parts.cache, parts.rounds, **options)

    def __post_init__(self) -> None:
        if not 0 < self.first_weight < 1 or not 0 < self.annealed_share <= 1:
            raise InvalidInput(
                f"method.first_weight = {self.first_weight} and method.annealed_share = {self.annealed_share}: "
                "give shares above 0, the first below 1, the second up to 1."
            )
        if self.last_weight is not None and not 0 < self.last_weight < 1:
            raise InvalidInput(f"method.last_weight = {self.last_weight}: give a share above 0 and below 1.")

    @property
    def keeps_budgets(self) -> bool:
        """Whether no client is made to train what it could not afford to serve."""
        return self.constrained

    def trains(self, budget_macs: float) -> bool:
        """Return whether a client takes part: without constraint every one does."""
        return super().trains(budget_macs) or not self.constrained

    @abstractmethod
    def largest(self, client: Client, generator: np.random.Generator) -> Hashable:
        """Return what the client in the role of the largest trains."""

    @abstractmethod
    def smallest(self) -> Hashable:
        """Return what the client in the role of the smallest trains."""

    @abstractmethod
    def drawn(self, client: Client, generator: np.random.Generator) -> Hashable:
        """Return what a client without a role trains."""

    def initial_state(self) -> State:
        """Return how often each client had a role: nobody yet."""
        return {"largest": torch.zeros(0, dtype=torch.int64), "smallest": torch.zeros(0, dtype=torch.int64)}

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Give the roles to the clients that had them least; the largest network's answer weighs beta."""
        counts = {role: _grown(count, 1 + max(client.index for client in cohort)) for role, count in state.items()}
        by_largest = sorted(cohort, key=lambda client: int(counts["largest"][client.index]))
        by_smallest = sorted(by_largest[1:], key=lambda client: int(counts["smallest"][client.index]))
        beta = self.largest_weight(round_index, len(cohort))
        assignments = []
        for client in cohort:
            has_largest = client is by_largest[0]
            if has_largest:
                architecture = self.largest(client, generator)
            elif client is by_smallest[0]:
                architecture = self.smallest()
            else:
                architecture = self.drawn(client, generator)
            # A draw that hits an end counts as having had the role.
            counts["largest"][client.index] += int(has_largest or architecture == self._ends[1])
            counts["smallest"][client.index] += int(not has_largest and architecture == self._ends[0])
            share = beta if has_largest else (1 - beta) / (len(cohort) - 1)
            weight = share * weight_of(client, self.weighting)
            assignments.append(Assignment(client, self._slices(architecture), (architecture,), weight))
        return assignments, counts

    def largest_weight(self, round_index: int, cohort_size: int) -> float:
        """Return beta: from its first value along a cosine to its last, an equal share; 1 in a cohort of one."""
        if cohort_size == 1:
            return 1.0
        last = 1 / cohort_size if self.last_weight is None else self.last_weight
        progress = min(round_index / (self.annealed_share * self.rounds), 1.0)
        return last + (self.first_weight - last) * (1 + cos(pi * progress)) / 2

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return every cached variant."""
        return cached_points(self.cache)

    @cached_property
    def _ends(self) -> tuple[Hashable, Hashable]:
        """The smallest and the largest network that the sampler knows."""
        return self.cache[0].architecture, self.cache[-1].architecture

    def _slices(self, architecture: Hashable) -> SliceMap:
        if architecture in self._kept_slices:
            return self._kept_slices[architecture]
        slices = LeadingSlices.of(self.network.layout, self.network.shapes(architecture))
        if architecture in self.trained_architectures():
            self._kept_slices[architecture] = slices
        return slices

    @cached_property
    def _kept_slices(self) -> dict[Hashable, SliceMap]:
        return {}


@dataclass(frozen=True)
class DeepFedNas(FederatedNas):
    """Networks are drawn from the cache of the fittest ones."""

    suits: ClassVar = "As SuperFedNAS, where the sizes to serve are known before: only cached networks are trained."

    paper: ClassVar = "Khan et al., DeepFedNAS: Pareto-guided federated neural architecture search, 2026"
    sampling: Sampling = "uniform"  # of clients without a role: all alike, or in proportion to 1 / MACs

    def largest(self, client: Client, generator: np.random.Generator) -> Hashable:
        """Return the cache's last variant, or the last that the client affords."""
        return self._pool(client)[-1][0]

    def smallest(self) -> Hashable:
        """Return the cache's first variant."""
        return self._ends[0]

    def drawn(self, client: Client, generator: np.random.Generator) -> Hashable:
        """Return a variant of the cache, or of those that the client affords."""
        pool = self._pool(client)
        return pool[draw_place([price for _, price in pool], self.sampling, generator)][0]

    def _pool(self, client: Client) -> list[tuple[Hashable, int]]:
        """Return the variants that a client may train, with their prices."""
        variants = self.cache.affordable(client.budget_macs) if self.constrained else self.cache
        return [(variant.architecture, variant.price) for variant in variants]


@dataclass(frozen=True)
class SuperFedNas(FederatedNas):
    """Networks are drawn from the whole space: every depth, expansion and width with the same chance."""

    suits: ClassVar = (
        "Architectures are to be searched after training: random networks of the whole space are trained, not a cache."
    )

    paper: ClassVar = "Khare et al., SuperFedNAS: Cost-Efficient Federated Neural Architecture Search, 2024"
    presets: ClassVar = {
        **FederatedNas.presets,
        "authors": {**FederatedNas.presets["authors"], "largest_draws": 20, "tries": 50},
    }
    network: ElasticResNet
    # Choice: a constrained client's "largest" network is the costliest of this many affordable draws.
    largest_draws: int = 32
    tries: int | None = None  # without success the space's smallest network; without a number until one is affordable

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return the method on the elastic ResNet, whose space it draws from."""
        return cls(parts.elastic_resnet_for("superfednas"), parts.cache, parts.rounds, **options)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("largest_draws", "tries"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise InvalidInput(f"method.{name} = {number}: give at least 1.")

    def largest(self, client: Client, generator: np.random.Generator) -> Hashable:
        """Return the whole supernet, or the costliest affordable one of some draws where that is too much."""
        whole = self.network.space.largest
        if not self.constrained or client.budget_macs >= self.network.macs(whole):
            return whole
        if self.tries is not None:
            drawn = self._try(client, generator, self.largest_draws)
            return max(drawn, key=self.network.macs, default=self.smallest())
        return max(self._draw(client, generator, self.largest_draws), key=self.network.macs)

    def smallest(self) -> Hashable:
        """Return the smallest network of the space."""
        return self.network.space.smallest

    def drawn(self, client: Client, generator: np.random.Generator) -> Hashable:
        """Return a network of the space, or of those that the client affords."""
        if self.tries is None or not self.constrained:
            return self._draw(client, generator, 1)[0]
        drawn = self._try(client, generator, self.tries)
        return drawn[0] if drawn else self.smallest()

    def trained_architectures(self) -> tuple[Hashable, ...]:
        """Return the ends of the space and what is served."""
        space = self.network.space
        return tuple(dict.fromkeys((space.smallest, *super().trained_architectures(), space.largest)))

    @cached_property
    def _ends(self) -> tuple[Hashable, Hashable]:
        return self.network.space.smallest, self.network.space.largest

    def _try(self, client: Client, generator: np.random.Generator, count: int) -> list[Architecture]:
        """Return what the client affords of so many draws."""
        drawn = draw_architectures(self.network.space, count, np.inf, generator)
        return [one for one in drawn if self.network.macs(one) <= client.budget_macs]

    def _draw(self, client: Client, generator: np.random.Generator, count: int) -> list[Architecture]:
        limit = client.budget_macs if self.constrained else np.inf
        return draw_architectures(self.network.space, count, limit, generator)


def _grown(counts: Tensor, size: int) -> Tensor:
    """Return a copy with room for so many clients."""
    grown = torch.zeros(max(size, len(counts)), dtype=torch.int64)
    grown[: len(counts)] = counts
    return grown
