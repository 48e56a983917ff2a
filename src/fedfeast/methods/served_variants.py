"""Cached variants as operating points, and how methods route the envelope of those that a client affords."""

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from math import inf
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Method, OperatingPoint, Parts, State
from fedfeast.methods.tiers import Backbone, checked
from fedfeast.networks import ElasticNetwork
from fedfeast.routing import LeadingSlices, SliceMap, envelope_of
from fedfeast.units import name_by_macs, number_repeated
from fedfeast.variants import Variant, VariantCache

Sampling = Literal["uniform", "inverse-macs"]  # all alike, or the cheaper the more often


def drawing_chances(prices: Sequence[float], sampling: Sampling) -> NDArray[np.float64]:
    """Return with which chance each of some variants is drawn."""
    # Choice: in proportion to 1 / MACs, the price's where a cache has prices (docs/decisions/035).
    weights = np.ones(len(prices)) if sampling == "uniform" else 1 / np.asarray(prices, dtype=np.float64)
    return np.asarray(weights / weights.sum())


def draw_place(prices: Sequence[float], sampling: Sampling, generator: np.random.Generator) -> int:
    """Draw one of some variants."""
    if sampling == "uniform":
        return int(generator.integers(len(prices)))
    up_to = np.cumsum(drawing_chances(prices, sampling))
    return int(
        np.searchsorted(up_to[:-1], generator.random(), side="right")
    )  # rounding leaves no place behind the last


def cached_points(variants: Iterable[Variant]) -> tuple[OperatingPoint, ...]:
    """Return one operating point per variant, named by its price."""
    listed = tuple(variants)
    names = number_repeated(name_by_macs(tuple(one.price for one in listed)))
    return tuple(
        OperatingPoint(name, variant.macs, variant.parameters, variant.architecture, variant.listed_price)
        for name, variant in zip(names, listed, strict=True)
    )


# Choice: those of FjORD. The first costs 23M MACs of ResNet-18, so that all five suit budgets from 25M on.
RESNET_WIDTHS = (0.2, 0.4, 0.6, 0.8, 1.0)


def variants_on(
    parts: Parts, method: str, backbone: Backbone, widths: Sequence[float] | None
) -> tuple[ElasticNetwork, VariantCache]:
    """Return the elastic network with its cache, or as a control the compared methods' ResNet in several widths."""
    if backbone == "resnet":
        resnet = parts.resnet_for(method)
        shares = RESNET_WIDTHS if widths is None else checked(widths)
        return resnet, VariantCache.of([Variant.of(resnet, resnet.narrowed(share)) for share in shares])
    if widths is not None:
        raise InvalidInput(
            f"method.widths = {list(widths)} are of the ResNet, and method.backbone = {backbone!r} has its cache: "
            "set method.backbone=resnet, or leave them out."
        )
    return parts.elastic, parts.cache


class EnvelopeRouting(Method):
    """Clients receive the envelope of their affordable set and may train any variant of it."""

    plans_by_weights: ClassVar = False

    network: ElasticNetwork
    cache: VariantCache

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Route each client the envelope of its affordable set (Eqs. 3, 4); its answer weighs n_i (Eq. 7)."""
        return [self.assign(client) for client in cohort], state

    def assign(self, client: Client) -> Assignment:
        """Return what one client receives and may train: all that it affords."""
        return self.assign_up_to(client, inf)

    def assign_up_to(self, client: Client, greatest_price: float) -> Assignment:
        """Return what one client receives and may train of what costs at most so many MACs."""
        affordable = self.cache.affordable(min(client.budget_macs, greatest_price))
        envelope = envelope_of(affordable, self.network)
        if envelope not in self._slice_maps:
            self._slice_maps[envelope] = LeadingSlices.of(self.network.layout, self.network.shapes(envelope))
        architectures = tuple(variant.architecture for variant in affordable)
        return Assignment(client, self._slice_maps[envelope], architectures, weight=client.num_examples)

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return every cached variant."""
        return cached_points(self.cache)

    @cached_property
    def _prices(self) -> dict[Hashable, int]:
        """The MACs that budgets are compared with, by architecture; the least where a cache has one twice."""
        return {variant.architecture: variant.price for variant in reversed(self.cache.variants)}

    @cached_property
    def _slice_maps(self) -> dict[Hashable, SliceMap]:
        """One map per distinct envelope, made when first needed."""
        return {}
