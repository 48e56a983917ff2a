"""Split-Mix: narrow base networks, as many for a client as it affords, mixed for serving (Hong et al., 2022)."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import (
    Assignment,
    Client,
    Constants,
    Method,
    OperatingPoint,
    Parts,
    Pass,
    State,
    mixed_cross_entropy,
)
from fedfeast.methods.tiers import Weighting, weight_of
from fedfeast.networks.ensemble import Bases, Ensemble
from fedfeast.routing import LeadingSlices, SliceMap
from fedfeast.units import name_by_macs

MOST_BASES = 256  # mixes of one more network each are all served, so that what is named grows with the square


@dataclass(frozen=True)
class SplitMix(Method):
    """A client trains some base networks, others in every round; a device is served the mean of as many as it affords.

    The released code's scaler cancels in a norm by batch statistics, as HeteroFL's does.
    """

    plans_differ: ClassVar = True
    plans_by_weights: ClassVar = False
    paper: ClassVar = (
        "Hong et al., Efficient Split-Mix Federated Learning for On-Demand and In-Situ Customization, 2022"
    )
    suits: ClassVar = "Devices that may answer with as many narrow networks as they can spare at the moment."
    network: Ensemble
    width: float = 0.125  # of a base network, as a share of the ResNet's channels
    bases: int = 8  # how many there are
    weighting: Weighting = "samples"  # what an answer weighs: one, or the client's examples

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return Split-Mix on narrow ResNets in pre-activation order."""
        width, bases = options.get("width", cls.width), options.get("bases", cls.bases)
        if not 0 < width <= 1 or not 1 <= bases <= MOST_BASES:
            raise InvalidInput(
                f"method.width = {width} and method.bases = {bases}: give a share of the channels above 0 and up to 1, "
                f"and 1 to {MOST_BASES} base networks."
            )
        resnet = parts.resnet_for("splitmix")
        # Ten decimals first: a product such as 0.28 * 25 lies a little off the whole number it means.
        channels = tuple(max(1, int(round(width * full, 10))) for full in resnet.stage_channels)
        return cls(Ensemble(replace(resnet, stage_channels=channels, activation="before"), bases, width), **options)

    def number_affordable(self, budget_macs: float) -> int:
        """Return how many base networks a budget affords."""
        # Choice: by MACs, as budgets are here; the paper's are shares of the width.
        return min(self.bases, int(budget_macs // self._base_macs))

    def initial_state(self) -> State:
        """Return the base networks that wait for a client: none, which begins a new turn of all."""
        return {"waiting": torch.zeros(0, dtype=torch.int64)}

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Give every client the next base network, so that all have their turn, and random others."""
        waiting: list[int] = state["waiting"].tolist()
        assignments = []
        for client in cohort:
            waiting = waiting or generator.permutation(self.bases).tolist()
            first, waiting = waiting[0], waiting[1:]
            others = np.delete(np.arange(self.bases), first)
            drawn = generator.choice(others, self.number_affordable(client.budget_macs) - 1, replace=False)
            held = Bases(tuple(sorted([first, *drawn.tolist()])))
            singles = tuple(Bases((number,)) for number in held.numbers)
            assignments.append(Assignment(client, self._slices(held), singles, weight_of(client, self.weighting)))
        return assignments, {"waiting": torch.tensor(waiting, dtype=torch.int64)}

    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        """Return a pass of every base network that the client holds."""
        return [Pass(one, "supervised") for one in assignment.architectures]

    def expected_passes(self, assignment: Assignment) -> dict[Hashable, float]:
        """Return one pass of each."""
        return dict.fromkeys(assignment.architectures, 1.0)

    def served_macs(self, assignment: Assignment) -> int:
        """Return what one inference by all base networks that a client holds would cost."""
        return len(assignment.architectures) * self._base_macs

    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor | None]:
        """Return the base network's own supervised loss."""
        return mixed_cross_entropy(outputs[-1], batch), None

    @cached_property
    def points(self) -> tuple[OperatingPoint, ...]:
        """The means of the first base networks."""
        mixes = [Bases(tuple(range(number))) for number in range(1, self.bases + 1)]
        costs = tuple(map(self.network.macs, mixes))
        return tuple(
            OperatingPoint(name, macs, self.network.parameters(mix), mix)
            for name, macs, mix in zip(name_by_macs(costs), costs, mixes, strict=True)
        )

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return a mean of so many base networks each."""
        return self.points

    def trained_architectures(self) -> tuple[Hashable, ...]:
        """Return every base network alone."""
        return tuple(Bases((number,)) for number in range(self.bases))

    @property
    def _base_macs(self) -> int:
        """What one inference of a base network costs."""
        return self.network.macs(Bases((0,)))

    def _slices(self, held: Bases) -> SliceMap:
        if held not in self._slice_maps:
            self._slice_maps[held] = LeadingSlices.of(self.network.layout, self.network.shapes(held))
        return self._slice_maps[held]

    @cached_property
    def _slice_maps(self) -> dict[Bases, SliceMap]:
        return {}
