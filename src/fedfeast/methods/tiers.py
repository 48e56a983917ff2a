"""What methods with a short table of fixed levels share: every client trains the largest one it can afford."""

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Literal

import numpy as np
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Constants, OperatingPoint, State
from fedfeast.methods.one_pass import OnePassMethod
from fedfeast.networks import Level, ResNet
from fedfeast.routing import LeadingSlices, SliceMap
from fedfeast.units import name_by_macs

Weighting = Literal["count", "samples"]  # what an answer weighs: one, or the client's examples


@dataclass(frozen=True)
class Tier:
    """A level as it is trained, and what of it is served."""

    trained: Level
    served: Level


class TieredMethod(OnePassMethod):
    """Leading slices of the baselines' ResNet; a client trains one level, the largest it affords."""

    network: ResNet
    weighting: Weighting

    @abstractmethod
    def levels_in_order(self) -> Sequence[Tier]:
        """Return the levels as the hyper-parameters name them."""

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
            OperatingPoint(name, macs, self.network.parameters(level), level)
            for name, macs, level in zip(name_by_macs(costs), costs, served, strict=True)
        )

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return every level."""
        return self.points

    def trained_architectures(self) -> tuple[Hashable, ...]:
        """Return the levels as they are trained."""
        return tuple(tier.trained for tier in self.tiers)

    def affordable(self, budget_macs: float) -> tuple[Tier, ...]:
        """Return the levels that a budget affords, least first."""
        count = int(np.searchsorted([point.macs for point in self.points], budget_macs, side="right"))
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

    def levels_of(self, client: Client) -> tuple[Level, ...]:
        """Return the levels that a client trains: the largest it affords."""
        return (self.affordable(client.budget_macs)[-1].trained,)

    def slices_of(self, level: Level, round_index: int) -> SliceMap:
        """Return what of the global tensors a level holds in a round."""
        if level not in self._slice_maps:
            self._slice_maps[level] = LeadingSlices.of(self.network.layout, self.network.shapes(level))
        return self._slice_maps[level]

    def constants_of(self, client: Client, round_index: int) -> Constants:
        """Return what stays the same for a client over a round."""
        return {}

    @cached_property
    def _slice_maps(self) -> dict[Level, SliceMap]:
        return {}


def weight_of(client: Client, weighting: Weighting) -> float:
    """Return what a client's answer weighs."""
    return float(client.num_examples) if weighting == "samples" else 1.0


def narrowed(network: ResNet, widths: Sequence[float]) -> list[Tier]:
    """Return a level per width: that share of every stage's channels, rounded up."""
    if not widths or not all(0 < width <= 1 for width in widths):
        raise InvalidInput(f"method.widths = {list(widths)}: give shares of the channels, above 0 and up to 1.")
    whole = network.whole
    tiers = []
    for width in widths:
        # Ten decimals first: a product such as 0.28 * 25 lies a little above the whole number it means.
        level = Level(tuple(ceil(round(width * full, 10)) for full in whole.channels), whole.exits)
        tiers.append(Tier(level, level))
    return tiers
