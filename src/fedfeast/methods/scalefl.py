"""ScaleFL: levels cut in depth and width, with a classifier after every stage (Ilhan et al., 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Constants, Parts, mixed_cross_entropy
from fedfeast.methods.tiers import Tier, TieredMethod, Weighting
from fedfeast.networks import Level, ResNet


@dataclass(frozen=True)
class ScaleFL(TieredMethod):
    """A client trains a narrow network up to one of its exits; the last exit teaches those before it."""

    paper: ClassVar = "Ilhan et al., ScaleFL: Resource-Adaptive Federated Learning with Heterogeneous Clients, 2023"
    network: ResNet
    rounds: int
    # Choice: (stages, width) of the levels; these fit the paper's compute and its least budget of 25M.
    levels: tuple[tuple[int, float], ...] = ((1, 0.4), (2, 0.5), (3, 0.6), (4, 1.0))
    weighting: Weighting = "count"
    distillation: float = 0.05  # gamma
    temperature: float = 3.0
    warm_up: float = 0.25  # share of the rounds; distillation begins in the round after it

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return ScaleFL on a post-activation ResNet with an exit after every stage."""
        return cls(replace(parts.resnet_for("scalefl"), early_exits=True), parts.rounds, **options)

    def __post_init__(self) -> None:
        stages = len(self.network.stage_channels)
        for depth, width in self.levels:
            if not 1 <= depth <= stages or not 0 < width <= 1:
                raise InvalidInput(
                    f"method.levels has the level [{depth}, {width}]: give 1 to {stages} stages and "
                    "a share of the channels above 0 and up to 1."
                )
        if not self.levels:
            raise InvalidInput("method.levels = []: give at least one level as [stages, width].")
        if not self.temperature > 0:
            raise InvalidInput(f"method.temperature = {self.temperature}: it must be above 0.")
        if not self.distillation >= 0:
            raise InvalidInput(f"method.distillation = {self.distillation}: it must not be negative.")
        if not self.warm_up <= 1:
            raise InvalidInput(f"method.warm_up = {self.warm_up}: give a share of the rounds, at most 1.")

    def levels_in_order(self) -> Sequence[Tier]:
        """Return each level, trained with all its exits and served with its last, its channels rounded down."""
        tiers = []
        for depth, width in self.levels:
            channels = tuple(max(1, int(round(width * full, 10))) for full in self.network.stage_channels[:depth])
            tiers.append(Tier(Level(channels, tuple(range(1, depth + 1))), Level(channels, (depth,))))
        return tiers

    def constants_of(self, client: Client, round_index: int) -> Constants:
        """Return whether the warm-up is over."""
        return {"distils": torch.tensor(float(round_index > self.warm_up * self.rounds))}

    def served_macs(self, assignment: Assignment) -> int:
        """Return the cost of the client's level with its last exit alone."""
        return next(self.network.macs(tier.served) for tier in self.tiers if tier.trained in assignment.architectures)

    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor | None]:
        """Return the mean over exits, weighted by their number; the last one's softened output teaches the others."""
        total = len(outputs) * mixed_cross_entropy(outputs[-1], batch)
        taught = (outputs[-1].detach() / self.temperature).softmax(dim=1)
        strength = self.distillation * self.temperature**2 * constants["distils"]
        for number, logits in enumerate(outputs[:-1], start=1):
            students = F.log_softmax(logits / self.temperature, dim=1)
            distilled = F.kl_div(students, taught, reduction="batchmean")
            total = total + number * (mixed_cross_entropy(logits, batch) + strength * distilled)
        return total / (len(outputs) * (len(outputs) + 1) / 2), None
