"""ScaleFL: levels cut in depth and width, with a classifier at the end of each (Ilhan et al., 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Constants, Parts, mixed_cross_entropy
from fedfeast.methods.tiers import Tier, TieredMethod, Weighting
from fedfeast.networks import Initialisation, Level, ResNet

Levels = tuple[tuple[int, float], ...]
DepthUnit = Literal["stages", "blocks"]

# Choice: depth as a share of the blocks, and width, of the levels. On ResNet-18 they end after blocks 3, 4, 5 and 8, as
# those of FEAST's authors do, but the first is narrower, so that it keeps within the least budget of 25M.
SHARES = ((3 / 8, 0.34), (4 / 8, 0.5), (5 / 8, 0.6), (1.0, 1.0))
LEAST_BLOCKS = 8  # from which on these are four different depths; a shorter network has a level per stage
STAGE_LEVELS: Levels = ((1, 0.4), (2, 0.5), (3, 0.6), (4, 1.0))  # those of the first release, and of short networks


@dataclass(frozen=True)
class ScaleFL(TieredMethod):
    """A client trains a narrow network up to one of its exits; the last exit teaches those before it."""

    suits: ClassVar = "A few sizes that should also stop early: every level has an exit that the deepest one teaches."

    paper: ClassVar = "Ilhan et al., ScaleFL: Resource-Adaptive Federated Learning with Heterogeneous Clients, 2023"
    presets: ClassVar = {
        "authors": {
            "levels": ((3, 0.4), (4, 0.5), (5, 0.6), (8, 1.0)),
            "depth_unit": "blocks",
            "rounding": "up",
            "everyone_trains": True,
            "initialisation": "he-normal",
            "weighting": "samples",
            "distillation": 0.1,
            "temperature": 3.0,
            "warm_up": -1.0,
            "loss_scale": 0.5,
        },
    }
    former_defaults: ClassVar = {"weighting": "count", "levels": STAGE_LEVELS}
    network: ResNet
    rounds: int
    levels: Levels | None = None  # (depth, width); without them by shares of the blocks
    weighting: Weighting = "samples"  # what an answer weighs: one, or the client's examples
    distillation: float = 0.05  # gamma
    temperature: float = 3.0  # by which outputs are divided where one teaches others
    warm_up: float = 0.25  # share of the rounds; distillation begins in the round after it
    depth_unit: DepthUnit = "stages"  # of the levels, where they are given
    rounding: Literal["down", "up"] = "down"  # of channels
    everyone_trains: bool = False  # a client below the smallest level trains it, and is served it, all the same
    loss_scale: float = 1.0  # of the whole loss
    initialisation: Initialisation = "torch"  # of the weights that training begins with

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return ScaleFL on a post-activation ResNet with an exit at the end of every level."""
        resnet = parts.resnet_for("scalefl")
        levels, unit = resolve_levels(resnet, options.get("levels"), options.get("depth_unit", cls.depth_unit))
        _refuse_bad_levels(resnet, levels, unit)
        if unit == "blocks":
            ends = sorted({depth for depth, _ in levels} | {sum(resnet.blocks)})
            resnet = replace(resnet, exit_blocks=tuple(ends))
        else:
            resnet = replace(resnet, early_exits=True)
        resnet = replace(resnet, initialisation=options.get("initialisation", cls.initialisation))
        return cls(resnet, parts.rounds, **options)

    def __post_init__(self) -> None:
        _refuse_bad_levels(self.network, *self._resolved)
        if not self.temperature > 0:
            raise InvalidInput(f"method.temperature = {self.temperature}: it must be above 0.")
        if not self.distillation >= 0:
            raise InvalidInput(f"method.distillation = {self.distillation}: it must not be negative.")
        if not self.warm_up <= 1:
            raise InvalidInput(f"method.warm_up = {self.warm_up}: give a share of the rounds, at most 1.")
        if not self.loss_scale > 0:
            raise InvalidInput(f"method.loss_scale = {self.loss_scale}: it must be above 0.")

    @property
    def _resolved(self) -> tuple[Levels, DepthUnit]:
        """The levels and what their depth counts."""
        return resolve_levels(self.network, self.levels, self.depth_unit)

    def levels_in_order(self) -> Sequence[Tier]:
        """Return each level, trained with all its exits and served with its last."""
        levels, unit = self._resolved
        tiers = []
        for depth, width in levels:
            # Ten decimals first: a product such as 0.28 * 25 lies a little above the whole number it means.
            exact = [round(width * full, 10) for full in self.network.stage_channels]
            channels = tuple(ceil(one) if self.rounding == "up" else max(1, int(one)) for one in exact)
            if unit == "blocks":
                exits = tuple(one for one in self.network.exit_blocks if one <= depth)
                trained, served = (self.network.shortened(depth, channels, ends) for ends in (exits, (depth,)))
            else:
                trained = Level(channels[:depth], tuple(range(1, depth + 1)))
                served = Level(channels[:depth], (depth,))
            tiers.append(Tier(trained, served))
        return tiers

    def listed_prices(self) -> Sequence[int | None]:
        """Return the levels' own costs, but nothing for the smallest where everyone trains."""
        prices = list(super().listed_prices())
        return [0, *prices[1:]] if self.everyone_trains else prices

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
        return self.loss_scale * total / (len(outputs) * (len(outputs) + 1) / 2), None


def resolve_levels(network: ResNet, levels: Levels | None, unit: DepthUnit) -> tuple[Levels, DepthUnit]:
    """Return the given levels, or those by shares of the network's blocks, and what their depth counts."""
    if levels is not None:
        return levels, unit
    total = sum(network.blocks)
    if total < LEAST_BLOCKS:
        return STAGE_LEVELS, "stages"
    return tuple((round(share * total), width) for share, width in SHARES), "blocks"


def _refuse_bad_levels(network: ResNet, levels: Levels, unit: DepthUnit) -> None:
    most = sum(network.blocks) if unit == "blocks" else len(network.stage_channels)
    for depth, width in levels:
        if not 1 <= depth <= most or not 0 < width <= 1:
            raise InvalidInput(
                f"method.levels has the level [{depth}, {width}]: give 1 to {most} {unit} and "
                "a share of the channels above 0 and up to 1."
            )
    if not levels:
        raise InvalidInput(f"method.levels = []: give at least one level as [{unit}, width].")
