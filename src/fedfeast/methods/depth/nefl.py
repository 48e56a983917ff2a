"""NeFL: levels nested in width and depth, with step sizes and norms of their own (Kang et al., 2023)."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Deployed, OperatingPoint, Parts, State
from fedfeast.methods.tiers import Tier, TieredMethod, Weighting
from fedfeast.networks import Layout, ResNet
from fedfeast.networks.nested_resnet import Cut, NestedLevel, NestedResNet

# Choice: FjORD's widths, so that the smallest of five costs less than 25M on ResNet-18; the released ones cost 167M and
# more. As there, the smallest level also lacks the last block.
WIDTHS = (0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class NeFL(TieredMethod):
    """Convolutions and head are averaged where levels overlap, norms and step sizes within a level alone.

    A skipped block is its shortcut. Choice: the blocks of a stage that are kept are its first, as in the released
    levels of ResNet-18, so that what is left out of an identity leaves no trace.
    """

    plans_differ: ClassVar = True
    paper: ClassVar = "Kang et al., NeFL: Nested Model Scaling for Federated Learning, 2023"
    suits: ClassVar = "A few sizes cut in depth and width, each with norms of its own, to be served as plain ResNets."
    presets: ClassVar = {"released": {"weighting": "count", "flexibility": 2}}
    network: NestedResNet
    levels: tuple[Cut, ...] | None = None  # (width, blocks of each stage); without them five widths
    weighting: Weighting = "samples"  # what an answer weighs: one, or the client's examples
    # Choice: none. The released code draws a level up to two below or above that of a client's group; never above here.
    flexibility: int = 0  # how many levels below the largest affordable one a client may be given in a round

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return NeFL on a post-activation ResNet."""
        resnet, levels = parts.resnet_for("nefl"), options.get("levels")
        return cls(NestedResNet(resnet, default_levels(resnet) if levels is None else levels), **options)

    def __post_init__(self) -> None:
        if self.flexibility < 0:
            raise InvalidInput(f"method.flexibility = {self.flexibility}: give a number of levels, 0 or more.")

    def levels_in_order(self) -> Sequence[Tier]:
        """Return every level."""
        return [Tier(level, level) for level in self.network.levels]

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Send every client its largest level, or one drawn from some below it."""
        assignments, state = super().plan_round(state, flat, cohort, round_index, generator)
        if not self.flexibility:
            return assignments, state
        return [self._redrawn(one, round_index, generator) for one in assignments], state

    def _redrawn(self, assignment: Assignment, round_index: int, generator: np.random.Generator) -> Assignment:
        client = assignment.client
        choice = self.affordable(client.budget_macs)[-1 - self.flexibility :]
        level: Hashable = choice[int(generator.integers(len(choice)))].trained
        return Assignment(client, self.slices_of(level, round_index), (level,), assignment.weight)

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return every level as it is served, without steps."""
        return tuple(
            OperatingPoint(point.name, point.macs, self._plain_layout(point).num_parameters, point.architecture)
            for point in self.points
        )

    def deploy(self, flat: Tensor, point: OperatingPoint) -> Deployed:
        """Take a level out of the global vector as a plain ResNet, its steps in its norms."""
        level = point.architecture
        assert isinstance(level, NestedLevel)
        plain, layout = self.network.plain(level), self._plain_layout(point)
        views = self.network.layout.views(flat, self.network.shapes(level))
        tensors = self.network.plain_weights(views, level)
        own = torch.empty(layout.size, dtype=flat.dtype, device=flat.device)
        for name, view in layout.views(own).items():
            view.copy_(tensors[name])
        return Deployed(plain, plain.whole, layout, own, point.macs, point.parameters)

    def _plain_layout(self, point: OperatingPoint) -> Layout:
        level = point.architecture
        assert isinstance(level, NestedLevel)
        plain = self.network.plain(level)
        return Layout.of(plain.shapes(plain.whole))


def default_levels(resnet: ResNet) -> tuple[Cut, ...]:
    """Return five widths, the smallest without the last block of a last stage that has more than one."""
    shorter = (*resnet.blocks[:-1], max(1, resnet.blocks[-1] - 1))
    return tuple((width, resnet.blocks if number else shorter) for number, width in enumerate(WIDTHS))
