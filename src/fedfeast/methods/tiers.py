"""What methods with a short table of fixed levels share: every client trains the largest one it can afford."""

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Constants, OperatingPoint, Parts, State
from fedfeast.methods.one_pass import OnePassMethod
from fedfeast.networks import Network, ResNet, SlicedVariant
from fedfeast.routing import LeadingSlices, SliceMap
from fedfeast.units import name_by_macs

Weighting = Literal["count", "samples"]  # what an answer weighs: one, or the client's examples
# What is sliced: the compared methods' ResNet, or as a control the largest cached variant of the elastic network.
Backbone = Literal["resnet", "elastic"]
Sliced = ResNet | SlicedVariant


@dataclass(frozen=True)
class Tier:
    """A level as it is trained, and what of it is served."""

    trained: Any  # of the network's family
    served: Any


class TieredMethod(OnePassMethod):
    """Leading slices of one network; a client trains one level, the largest it affords."""

    plans_by_weights: ClassVar = False

    network: Network
    weighting: Weighting

    @abstractmethod
    def levels_in_order(self) -> Sequence[Tier]:
        """Return the levels as the hyper-parameters name them."""

    def listed_prices(self) -> Sequence[int | None]:
        """Return the MACs that budgets are compared with, least level first; None where they are the level's own."""
        return [None] * len(self.tiers)

    @property
    def keeps_budgets(self) -> bool:
        """Whether no level is cheaper by its price than it is."""
        return all(point.price >= point.macs for point in self.points)

    @cached_property
    def tiers(self) -> tuple[Tier, ...]:
        """The levels, least served MACs first."""
        return tuple(sorted(self.levels_in_order(), key=lambda tier: self.network.macs(tier.served)))

    @cached_property
    def points(self) -> tuple[OperatingPoint, ...]:
        """The served levels as operating points."""
        served = [tier.served for tier in self.tiers]
        costs = tuple(self.network.macs(level) for level in served)
        if len(set(costs)) < len(costs):
            listed = ", ".join(map(str, costs))
            raise InvalidInput(f"two levels cost the same (their MACs are {listed}): leave one of them out.")
        return tuple(
            OperatingPoint(name, macs, self.network.parameters(level), level, price)
            for name, macs, level, price in zip(name_by_macs(costs), costs, served, self.listed_prices(), strict=True)
        )

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return every level."""
        return self.points

    def trained_architectures(self) -> tuple[Hashable, ...]:
        """Return the levels as they are trained."""
        return tuple(tier.trained for tier in self.tiers)

    def affordable(self, budget_macs: float) -> tuple[Tier, ...]:
        """Return the levels that a budget affords, least first."""
        count = int(np.searchsorted([point.price for point in self.points], budget_macs, side="right"))
        return self.tiers[:count]

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Send every client the leading slice of its level."""
        assignments = []
        for client in cohort:
            levels = self.levels_of(client)
            slices, constants = self.slices_of(levels[-1], round_index), self.constants_of(client, round_index)
            assignments.append(Assignment(client, slices, levels, weight_of(client, self.weighting), constants))
        return assignments, state

    def levels_of(self, client: Client) -> tuple[Hashable, ...]:
        """Return the levels that a client trains: the largest it affords."""
        return (self.affordable(client.budget_macs)[-1].trained,)

    def slices_of(self, level: Hashable, round_index: int) -> SliceMap:
        """Return what of the global tensors a level holds in a round."""
        if level not in self._slice_maps:
            self._slice_maps[level] = LeadingSlices.of(self.network.layout, self.network.shapes(level))
        return self._slice_maps[level]

    def constants_of(self, client: Client, round_index: int) -> Constants:
        """Return what stays the same for a client over a round."""
        return {}

    @cached_property
    def _slice_maps(self) -> dict[Hashable, SliceMap]:
        return {}


def weight_of(client: Client, weighting: Weighting) -> float:
    """Return what a client's answer weighs."""
    return float(client.num_examples) if weighting == "samples" else 1.0


def sliced_network(parts: Parts, method: str, backbone: Backbone, widths: Sequence[float]) -> Sliced:
    """Return the network that the named method narrows to shares of its width."""
    if backbone == "resnet":
        return parts.resnet_for(method)
    return SlicedVariant.of(parts.elastic_resnet_for(method), parts.cache[-1].architecture, checked(widths))


def narrowed(network: Sliced, widths: Sequence[float]) -> list[Tier]:
    """Return a level per width: that share of every stage's channels."""
    levels = [network.narrowed(width) for width in checked(widths)]
    return [Tier(level, level) for level in levels]


def checked(widths: Sequence[float]) -> Sequence[float]:
    """Return the widths; refuse those that are no shares."""
    if not widths or not all(0 < width <= 1 for width in widths):
        raise InvalidInput(f"method.widths = {list(widths)}: give shares of the channels, above 0 and up to 1.")
    return widths
