"""DepthFL: levels of different depth with a classifier after every stage, which all teach each other (Kim, 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Client, Constants, Parts, mixed_cross_entropy
from fedfeast.methods.tiers import Tier, TieredMethod, Weighting
from fedfeast.networks import Level, ResNet

RAMP_STEEPNESS = 5.0  # of the exponential by which distillation grows


@dataclass(frozen=True)
class DepthFL(TieredMethod):
    """A client trains the network up to the deepest stage that it affords; the mean of all exits is served.

    The paper's dynamic regularisation is left out: it is an optimiser beside the method, and needs clients that
    remember. Its exits are small networks; Choice: pooled linear heads, as ScaleFL's are here.
    """

    paper: ClassVar = "Kim et al., DepthFL: Depthwise Federated Learning for Heterogeneous Clients, 2023"
    suits: ClassVar = "A few depths of one network whose exits should teach each other and answer together."
    presets: ClassVar = {"released": {"width": 1.0, "weighting": "count"}}
    network: ResNet
    rounds: int
    # Choice: all levels at .4 of the channels, so that the first keeps within the least budget of 25M on ResNet-18. The
    # paper's are as wide as the network: 153M to 556M, which leaves out 72 of FEAST's 100 clients.
    width: float = 0.4
    weighting: Weighting = "samples"  # what an answer weighs: one, or the client's examples
    distillation: bool = True  # exits teach each other
    ramp_up: float = 0.3  # share of the rounds after which distillation has its full weight

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return DepthFL on a post-activation ResNet with an exit after every stage."""
        return cls(replace(parts.resnet_for("depthfl"), early_exits=True, averages_exits=True), parts.rounds, **options)

    def __post_init__(self) -> None:
        if not 0 < self.width <= 1:
            raise InvalidInput(f"method.width = {self.width}: give a share of the channels above 0 and up to 1.")
        if not 0 <= self.ramp_up <= 1:
            raise InvalidInput(f"method.ramp_up = {self.ramp_up}: give a share of the rounds from 0 to 1.")

    def levels_in_order(self) -> Sequence[Tier]:
        """Return a level per stage, trained and served with all its exits."""
        # Ten decimals first: a product such as 0.28 * 25 lies a little off the whole number it means.
        channels = tuple(max(1, int(round(self.width * full, 10))) for full in self.network.stage_channels)
        depths = range(1, len(channels) + 1)
        levels = [Level(channels[:depth], tuple(range(1, depth + 1))) for depth in depths]
        return [Tier(level, level) for level in levels]

    def constants_of(self, client: Client, round_index: int) -> Constants:
        """Return what distillation weighs in a round."""
        return {"consistency": torch.tensor(self.consistency(round_index))}

    def consistency(self, round_index: int) -> float:
        """Return the weight of distillation: exp(-5 (1 - t)^2), where t goes from 0 to 1 in the first rounds."""
        if not self.distillation:
            return 0.0
        growing = self.ramp_up * self.rounds
        left = max(0.0, 1 - round_index / growing) if growing else 0.0
        return exp(-RAMP_STEEPNESS * left**2)

    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor | None]:
        """Return the sum over exits of the supervised loss and the mean divergence from all other exits."""
        exits = outputs[:-1]  # the last output is their mean
        total = sum((mixed_cross_entropy(logits, batch) for logits in exits[1:]), mixed_cross_entropy(exits[0], batch))
        if len(exits) == 1 or not self.distillation:
            return total, None
        taught = [logits.detach().softmax(dim=1) for logits in exits]
        for number, logits in enumerate(exits):
            students = F.log_softmax(logits, dim=1)
            others = [F.kl_div(students, one, reduction="batchmean") for one in taught[:number] + taught[number + 1 :]]
            total = total + constants["consistency"] * torch.stack(others).mean()
        return total, None
