"""A ResNet whose levels share convolutions and head, but each have norms and step sizes of their own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod

import numpy as np
import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.networks.initialisation import draw_weights
from fedfeast.networks.layers import Layers, Weights
from fedfeast.networks.layout import ALIGNMENT, Layout
from fedfeast.networks.resnet import ResNet

Cut = tuple[float, tuple[int, ...]]  # the share of the channels, and how many blocks of each stage are kept: the first


@dataclass(frozen=True)
class NestedLevel:
    """One level, by number."""

    number: int  # from 1, in the order of the cuts


@dataclass(frozen=True)
class NestedResNet:
    """Levels cut in width and depth; a residual branch is multiplied by a step size, which is learnt."""

    resnet: ResNet
    cuts: tuple[Cut, ...]

    def __post_init__(self) -> None:
        blocks = self.resnet.blocks
        for width, kept in self.cuts:
            fits = len(kept) == len(blocks) and all(1 <= one <= all_ for one, all_ in zip(kept, blocks, strict=False))
            if not fits or not 0 < width <= 1:
                raise InvalidInput(
                    f"method.levels has the level [{width}, {list(kept)}]: give a share of the channels above 0 and up "
                    f"to 1, and of each stage at least one block, up to {list(blocks)}."
                )
        if not self.cuts:
            raise InvalidInput("method.levels = []: give at least one level as [width, [blocks of each stage]].")

    @property
    def draws(self) -> bool:
        """No layer drops anything."""
        return False

    @property
    def levels(self) -> tuple[NestedLevel, ...]:
        """All levels, in the order of the cuts."""
        return tuple(NestedLevel(number) for number in range(1, len(self.cuts) + 1))

    def plain(self, level: NestedLevel) -> ResNet:
        """Return a level as a network of its own, which has no steps: those are in its norms."""
        if not 1 <= level.number <= len(self.cuts):
            raise InvalidInput(f"{level} is not in the network: it has {len(self.cuts)} levels.")
        width, kept = self.cuts[level.number - 1]
        # Ten decimals first: a product such as 0.28 * 25 lies a little above the whole number it means.
        channels = tuple(ceil(round(width * full, 10)) for full in self.resnet.stage_channels)
        return replace(self.resnet, stage_channels=channels, blocks=kept)

    @cached_property
    def layout(self) -> Layout:
        """The layout of the flat vector of all levels."""
        shapes: dict[str, tuple[int, ...]] = {}
        for level in reversed(self.levels):
            for name, shape in self.shapes(level).items():
                shapes[name] = tuple(map(max, zip(shape, shapes.get(name, shape), strict=True)))
        return Layout.of(shapes, ALIGNMENT)

    def shapes(self, level: NestedLevel) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor a level has, its steps included."""
        plain = self.plain(level)
        shapes = {_own_name(name, level): shape for name, shape in plain.shapes(plain.whole).items()}
        return {**shapes, **{_step_name(block, level): (1,) for block in _blocks(plain)}}

    def macs(self, level: NestedLevel) -> int:
        """Return the multiply-accumulates of one inference."""
        plain = self.plain(level)
        return plain.macs(plain.whole)

    def convolution_macs(self, level: NestedLevel) -> int:
        """Return the multiply-accumulates of one inference, convolutions alone."""
        plain = self.plain(level)
        return plain.convolution_macs(plain.whole)

    def parameters(self, level: NestedLevel) -> int:
        """Return the number of parameters, steps included."""
        return sum(map(prod, self.shapes(level).values()))

    def initial_weights(self, generator: np.random.Generator) -> Tensor:
        """Draw a flat float32 vector as the ResNet does, with steps of 1."""
        drawn = {name: shape for name, shape in self.layout.shapes.items() if not name.endswith(".step")}
        layout, flat = Layout.of(drawn), self.layout.zeros(torch.float32)
        vectors = layout.views(draw_weights(layout, generator, self.resnet.branch_scale))
        for name, view in self.layout.views(flat).items():
            view.copy_(vectors[name]) if name in vectors else view.fill_(1.0)
        return flat

    def forward(self, weights: Weights, inputs: Tensor, level: NestedLevel, layers: Layers) -> tuple[Tensor, ...]:
        """Return the level's logits (batch, classes)."""
        plain = self.plain(level)
        return plain.forward(self.plain_weights(weights, level), inputs, plain.whole, layers)

    def plain_weights(self, weights: Weights, level: NestedLevel) -> dict[str, Tensor]:
        """Return a level's tensors as those of the plain network: a step times a norm is a norm with both its parts."""
        plain = self.plain(level)
        own = {name: weights[_own_name(name, level)] for name in plain.shapes(plain.whole)}
        for block in _blocks(plain):
            step = weights[_step_name(block, level)]
            for part in ("scale", "shift"):
                own[f"{block}.norm2.{part}"] = step * own[f"{block}.norm2.{part}"]
        return own


def _own_name(name: str, level: NestedLevel) -> str:
    """Return the name of a plain network's tensor among those of all levels."""
    return f"level{level.number}.{name}" if name.endswith((".scale", ".shift")) else name


def _step_name(block: str, level: NestedLevel) -> str:
    return f"level{level.number}.{block}.step"


def _blocks(plain: ResNet) -> Iterator[str]:
    """Yield the names of a network's blocks."""
    for stage, number in enumerate(plain.blocks, start=1):
        for block in range(number):
            yield f"stage{stage}.block{block}"
