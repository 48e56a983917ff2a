"""Cached variants as operating points, and how methods route the envelope of those that a client affords."""

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property

import numpy as np
from torch import Tensor

from fedfeast.federation import Assignment, Client, Method, OperatingPoint, State
from fedfeast.networks import ElasticNetwork
from fedfeast.routing import LeadingSlices, SliceMap, envelope_of
from fedfeast.units import name_by_macs, number_repeated
from fedfeast.variants import Variant, VariantCache


def cached_points(variants: Iterable[Variant]) -> tuple[OperatingPoint, ...]:
    """Return one operating point per variant, named by its price."""
    listed = tuple(variants)
    names = number_repeated(name_by_macs(tuple(one.price for one in listed)))
    return tuple(
        OperatingPoint(name, variant.macs, variant.parameters, variant.architecture, variant.listed_price)
        for name, variant in zip(names, listed, strict=True)
    )


class EnvelopeRouting(Method):
    """Clients receive the envelope of their affordable set and may train any variant of it."""

    network: ElasticNetwork
    cache: VariantCache

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Route each client the envelope of its affordable set (Eqs. 3, 4); its answer weighs n_i (Eq. 7)."""
        return [self.assign(client) for client in cohort], state

    def assign(self, client: Client) -> Assignment:
        """Return what one client receives and may train; it is the same in every round."""
        affordable = self.cache.affordable(client.budget_macs)
        envelope = envelope_of(affordable, self.network)
        if envelope not in self._slice_maps:
            self._slice_maps[envelope] = LeadingSlices.of(self.network.layout, self.network.shapes(envelope))
        architectures = tuple(variant.architecture for variant in affordable)
        return Assignment(client, self._slice_maps[envelope], architectures, weight=client.num_examples)

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return every cached variant."""
        return cached_points(self.cache)

    @cached_property
    def _slice_maps(self) -> dict[Hashable, SliceMap]:
        """One map per distinct envelope, made when first needed."""
        return {}
