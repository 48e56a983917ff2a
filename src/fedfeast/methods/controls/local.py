"""What a client trains that trains alone: the largest network it affords."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from fedfeast.federation import Assignment, Client, OperatingPoint, Parts, State
from fedfeast.methods.one_pass import OnePassMethod
from fedfeast.methods.served_variants import cached_points
from fedfeast.networks import ElasticNetwork
from fedfeast.routing import LeadingSlices, SliceMap
from fedfeast.variants import VariantCache


@dataclass(frozen=True)
class LocalTraining(OnePassMethod):
    """Every client trains the largest cached variant that it affords; whoever runs rounds of one client merges nothing.

    It is in no list of methods, since a run with a common vector would merge what has nothing in common.
    """

    plans_by_weights: ClassVar = False
    network: ElasticNetwork
    cache: VariantCache

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return it on the elastic network."""
        return cls(parts.elastic, parts.cache, **options)

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Give every client its network."""
        return [self._assign(client) for client in cohort], state

    def point_of(self, budget_macs: float) -> OperatingPoint | None:
        """Return the network of a client with this budget, if it affords any."""
        number = len(self.cache.affordable(budget_macs))
        return self._points[number - 1] if number else None

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return every cached variant."""
        return self._points

    def _assign(self, client: Client) -> Assignment:
        architecture = self.cache.affordable(client.budget_macs)[-1].architecture
        if architecture not in self._slice_maps:
            shapes = self.network.shapes(architecture)
            self._slice_maps[architecture] = LeadingSlices.of(self.network.layout, shapes)
        return Assignment(client, self._slice_maps[architecture], (architecture,), client.num_examples)

    @cached_property
    def _points(self) -> tuple[OperatingPoint, ...]:
        return cached_points(self.cache)

    @cached_property
    def _slice_maps(self) -> dict[Hashable, SliceMap]:
        return {}
