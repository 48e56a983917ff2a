"""FedSup and E-FedSup: a supernet trained by sandwiches, or one sub-model a client and round (Kim and Yun, 2022)."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Constants, OperatingPoint, Parts, Pass, State, taught_loss
from fedfeast.methods.one_pass import OnePassMethod
from fedfeast.methods.served_variants import EnvelopeRouting, cached_points
from fedfeast.methods.tiers import Weighting, weight_of
from fedfeast.networks import ElasticNetwork
from fedfeast.routing import LeadingSlices, SliceMap
from fedfeast.variants import Variant, VariantCache

PAPER = "Kim and Yun, Supernet Training for Federated Image Classification under System Heterogeneity, 2022"


@dataclass(frozen=True)
class FedSup(EnvelopeRouting):
    """On every mini-batch the largest network learns from labels, the smallest and random ones from the largest.

    The paper's normalisation without statistics is left out: what all methods here do, statistics of the batch in
    training and measured afresh for serving, answers the same question.
    """

    paper: ClassVar = PAPER
    suits: ClassVar = "An elastic network in which a step may train several sizes at once and traffic does not matter."
    presets: ClassVar = {"released": {"constrained": False, "weighting": "count"}}
    network: ElasticNetwork
    cache: VariantCache
    # Choice: by default a client's supernet ends with what it affords. The paper sends everybody the whole one.
    constrained: bool = True
    random_networks: int = 1  # Choice: as many as FEAST draws; the paper's number is not known
    weighting: Weighting = "samples"  # what an answer weighs: one, or the client's examples

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return FedSup on the elastic network."""
        return cls(parts.elastic, parts.cache, **options)

    def __post_init__(self) -> None:
        if self.random_networks < 0:
            raise InvalidInput(f"method.random_networks = {self.random_networks}: give 0 or more.")

    @property
    def keeps_budgets(self) -> bool:
        """Whether no client is made to train what it could not afford to serve."""
        return self.constrained

    def trains(self, budget_macs: float) -> bool:
        """Return whether a client takes part: without constraint every one does."""
        return super().trains(budget_macs) or not self.constrained

    def assign(self, client: Client) -> Assignment:
        """Return the envelope of what a client affords, or of everything."""
        able = client if self.constrained else replace(client, budget_macs=inf)
        return replace(super().assign(able), client=client, weight=weight_of(client, self.weighting))

    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        """Return the largest network's pass, then random ones' and last the smallest's, as far as they exist."""
        smallest, largest = assignment.architectures[0], assignment.architectures[-1]
        if smallest == largest:
            return [Pass(largest, "supervised")]
        # Choice: of the cached networks between the ends, which are trained anyway; the paper draws from its space.
        interior = self._interior(assignment)
        drawn = [interior[int(generator.integers(len(interior)))] for _ in range(self._number_drawn(interior))]
        return [Pass(largest, "teacher"), *(Pass(one, "student") for one in (*drawn, smallest))]

    def expected_passes(self, assignment: Assignment) -> dict[Hashable, float]:
        """Return 1 for the ends and an equal share of the draws for each network between them."""
        smallest, largest = assignment.architectures[0], assignment.architectures[-1]
        expected = {largest: 1.0, smallest: 1.0}
        interior = self._interior(assignment)
        if self._number_drawn(interior):
            for one in interior:  # one that the cache has twice is drawn twice as often
                expected[one] = expected.get(one, 0.0) + self.random_networks / len(interior)
        return expected

    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor | None]:
        """Return the supervised loss, or for a student that against the largest network's output alone."""
        (logits,) = outputs
        return taught_loss(role, logits, batch, carried)

    def _interior(self, assignment: Assignment) -> tuple[Hashable, ...]:
        """Return what may be drawn between the ends; a second row of an end's network is none."""
        architectures = assignment.architectures
        return tuple(one for one in architectures[1:-1] if one not in (architectures[0], architectures[-1]))

    def _number_drawn(self, interior: Sequence[Hashable]) -> int:
        return self.random_networks if interior else 0


@dataclass(frozen=True)
class EFedSup(OnePassMethod):
    """Every client is sent one network of about its size, drawn anew in every round, and trains it with labels."""

    plans_differ: ClassVar = True
    plans_by_weights: ClassVar = False
    paper: ClassVar = PAPER
    suits: ClassVar = "As FedSup, where a client should train one size a round and be sent no more than that."
    presets: ClassVar = {"released": {"weighting": "count"}}
    network: ElasticNetwork
    cache: VariantCache
    # Choice: drawn networks cost at least this share of the largest affordable one, and the smallest client's are the
    # smallest. The released code draws between 0.75M and 1M, or 2M and 2.75M parameters, by group of clients.
    least_share: float = 0.75
    weighting: Weighting = "samples"  # what an answer weighs: one, or the client's examples

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return E-FedSup on the elastic network."""
        return cls(parts.elastic, parts.cache, **options)

    def __post_init__(self) -> None:
        if not 0 <= self.least_share <= 1:
            raise InvalidInput(f"method.least_share = {self.least_share}: give a share from 0 to 1.")

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Draw every client's network and send it that network alone."""
        # Choice: merged where it was sent; the released code averages whole supernets, untouched weights included.
        assignments = []
        for client in cohort:
            candidates = self.candidates(client)
            architecture = candidates[int(generator.integers(len(candidates)))].architecture
            weight = weight_of(client, self.weighting)
            assignments.append(Assignment(client, self._slices(architecture), (architecture,), weight))
        return assignments, state

    def candidates(self, client: Client) -> Sequence[Variant]:
        """Return the affordable variants of about a client's size."""
        affordable = self.cache.affordable(client.budget_macs)
        return [one for one in affordable if one.price >= self.least_share * affordable[-1].price]

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return every cached variant."""
        return cached_points(self.cache)

    def _slices(self, architecture: Hashable) -> SliceMap:
        if architecture not in self._slice_maps:
            shapes = self.network.shapes(architecture)
            self._slice_maps[architecture] = LeadingSlices.of(self.network.layout, shapes)
        return self._slice_maps[architecture]

    @cached_property
    def _slice_maps(self) -> dict[Hashable, SliceMap]:
        return {}
