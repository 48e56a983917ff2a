"""FedAvg: one fixed network for every client that can afford it (McMahan et al., 2017)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, OperatingPoint, Parts, State
from fedfeast.methods.one_pass import OnePassMethod
from fedfeast.methods.served_variants import cached_points, variants_on
from fedfeast.methods.tiers import Backbone
from fedfeast.networks import ElasticNetwork
from fedfeast.routing import LeadingSlices, SliceMap
from fedfeast.variants import Variant, VariantCache


@dataclass(frozen=True)
class FedAvg(OnePassMethod):
    """Train one cached variant; clients that cannot afford it neither train nor are served."""

    suits: ClassVar = "Devices that all afford the one size, or as the reference that an elastic network has to beat."

    plans_by_weights: ClassVar = False
    paper: ClassVar = "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017"
    network: ElasticNetwork
    cache: VariantCache
    max_macs: float | None = None  # the largest cached variant up to here; without it the smallest of all
    backbone: Backbone = "elastic"  # what is trained: the elastic network, or the ResNet as a control
    widths: tuple[float, ...] | None = None  # of the ResNet's channels, where that is the backbone

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return FedAvg on a variant of the elastic network, or on the ResNet."""
        backbone, widths = options.get("backbone", cls.backbone), options.get("widths")
        return cls(*variants_on(parts, "fedavg", backbone, widths), **options)

    @cached_property
    def variant(self) -> Variant:
        """The one network."""
        if self.max_macs is None:
            return self.cache[0]
        affordable = self.cache.affordable(self.max_macs)
        if not affordable:
            raise InvalidInput(
                f"method.max_macs = {self.max_macs:.0f} is below the smallest cached variant: "
                f"give at least {self.cache[0].price}."
            )
        return affordable[-1]

    @property
    def least_macs(self) -> int:
        """That of the smallest variant: who cannot afford the one network is left out without complaint."""
        return self.cache[0].price

    def trains(self, budget_macs: float) -> bool:
        """Every client that affords the one network takes part."""
        return budget_macs >= self.variant.price

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Send everybody the network; an answer weighs n_i."""
        architectures = (self.variant.architecture,)
        return [Assignment(client, self._slice_map, architectures, client.num_examples) for client in cohort], state

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return the one network."""
        return cached_points([self.variant])

    @cached_property
    def _slice_map(self) -> SliceMap:
        return LeadingSlices.of(self.network.layout, self.network.shapes(self.variant.architecture))
