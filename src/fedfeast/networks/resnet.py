"""The CIFAR ResNet-18 of HeteroFL, ScaleFL, FIARSE, FjORD and FedRolex: one flat vector, every width and depth."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from math import ceil, isfinite, prod
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.networks.initialisation import draw_he_normal, draw_weights, refuse_branch_scale
from fedfeast.networks.layers import Layers, Weights
from fedfeast.networks.layout import ALIGNMENT, Layout
from fedfeast.networks.space import LARGEST

# What weights begin with: torch's defaults; or He's normal by outgoing channels, a head near 0 and its bias at 0.
Initialisation = Literal["torch", "he-normal"]


@dataclass(frozen=True)
class Level:
    """One network of the family: the channels of each stage it uses and the stages after which it gives logits.

    A network with exits after single blocks counts its exits in blocks, and a level may end within a stage.
    """

    channels: tuple[int, ...]  # the stem has the first stage's
    exits: tuple[int, ...]  # counted from 1, rising; the last is served
    blocks: tuple[int, ...] = ()  # of each stage it uses, where exits are counted in blocks
    divisor: float = 1.0  # of rectified features, in training and serving alike

    def __post_init__(self) -> None:
        if not self.channels or min(self.channels) < 1:
            raise InvalidInput(f"A level's channels are {list(self.channels)}: give at least 1 for every stage used.")
        if list(self.exits) != sorted(set(self.exits)) or not self.exits or self.exits[0] < 1:
            raise InvalidInput(f"A level's exits are {list(self.exits)}: list stages from 1 on, once, in rising order.")
        if self.blocks and (len(self.blocks) != len(self.channels) or min(self.blocks) < 1):
            raise InvalidInput(f"A level's blocks are {list(self.blocks)}: give at least 1 for every stage used.")
        length, unit = (sum(self.blocks), "blocks") if self.blocks else (len(self.channels), "stages")
        if self.exits[-1] != length:
            raise InvalidInput(
                f"A level's last exit is {self.exits[-1]} of {length} {unit}: "
                f"end the {'blocks at the one' if self.blocks else 'channels at the stage'} of the last exit."
            )
        if not (self.divisor > 0 and isfinite(self.divisor)):
            raise InvalidInput(f"A level's divisor is {self.divisor}: give a finite number above 0.")


class _Tensor(NamedTuple):
    name: str
    shape: tuple[int, ...]
    macs: int = 0  # of one scalar for one example


class _Block(NamedTuple):
    stage: int  # from 0
    block: int  # of the stage, from 0
    stride: int
    head: str | None  # that follows it

    @property
    def name(self) -> str:
        return f"stage{self.stage + 1}.block{self.block}"


@dataclass(frozen=True)
class ResNet:
    """Basic blocks in post- or pre-activation order; the defaults are ResNet-18 for CIFAR-100."""

    # Choice: two blocks in every stage, the only reading with the 11.22M parameters the paper gives the baselines.
    stage_channels: tuple[int, ...] = (64, 128, 256, 512)
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    stage_strides: tuple[int, ...] = (1, 2, 2, 2)
    stem_stride: int = 1
    image_size: int = 32
    image_channels: int = 3
    classes: int = 100
    activation: Literal["after", "before"] = "after"  # the convolutions
    # Choice: an exit is a pooled linear head, which gives the paper's 11.27M; ScaleFL's own heads convolve first.
    early_exits: bool = False  # a head after every stage, not the last alone
    exit_blocks: tuple[int, ...] = ()  # or after these blocks, counted from 1 over all stages
    averages_exits: bool = False  # the last output, which is served, is the mean of a level's exits
    initialisation: Initialisation = "torch"
    branch_scale: float = 1.0  # what the scale of a residual branch's last norm starts with

    def __post_init__(self) -> None:
        for name in ("stage_channels", "blocks", "stage_strides"):
            values = getattr(self, name)
            if len(values) != len(self.stage_channels):
                raise InvalidInput(
                    f"resnet.{name} has {len(values)} entries for {len(self.stage_channels)} stages: "
                    "give one per entry of resnet.stage_channels."
                )
            if not values or min(values) < 1 or max(values) >= LARGEST:
                raise InvalidInput(
                    f"resnet.{name} = {list(values)}: give at least one value, all from 1 to {LARGEST - 1}."
                )
        for name in ("stem_stride", "image_size", "image_channels"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"resnet.{name} = {getattr(self, name)}: it must be at least 1.")
        if self.stage_strides[0] != 1:
            raise InvalidInput(
                f"resnet.stage_strides starts with {self.stage_strides[0]}: give 1, since the first stage's shortcut "
                "is the identity, and stride in resnet.stem_stride instead."
            )
        if self.classes < 2:
            raise InvalidInput(f"resnet.classes = {self.classes}: a classifier needs at least 2 classes.")
        if self.activation not in ("after", "before"):
            raise InvalidInput(f'resnet.activation = "{self.activation}": give "after" or "before".')
        if (self.early_exits or len(self.exit_blocks) > 1) and self.activation == "before":
            raise InvalidInput(
                'resnet.early_exits = true with resnet.activation = "before": early exits need activation "after".'
            )
        self._refuse_other_exits()
        refuse_branch_scale(self.branch_scale)

    def _refuse_other_exits(self) -> None:
        """Refuse exits after blocks that do not rise to the network's last, or that are not the only kind."""
        exits, total = self.exit_blocks, sum(self.blocks)
        if exits and (list(exits) != sorted(set(exits)) or exits[0] < 1 or exits[-1] != total):
            raise InvalidInput(
                f"resnet.exit_blocks = {list(exits)}: list blocks from 1 on, once, in rising order, "
                f"and end with the last of all {total}."
            )
        if self.averages_exits and not self.early_exits:
            raise InvalidInput("resnet.averages_exits = true without resnet.early_exits: set both, or neither.")
        if exits and self.early_exits:
            raise InvalidInput(
                f"resnet.exit_blocks = {list(exits)} with resnet.early_exits = true: exits are after single blocks "
                "or after every stage, so leave one of them out."
            )

    @property
    def draws(self) -> bool:
        """No layer drops anything."""
        return False

    @property
    def whole(self) -> Level:
        """The full network with all the exits it has."""
        if self.exit_blocks:
            return Level(self.stage_channels, self.exit_blocks, self.blocks)
        last = len(self.stage_channels)
        return Level(self.stage_channels, tuple(range(1 if self.early_exits else last, last + 1)))

    @property
    def smallest(self) -> Level:
        """One channel in every stage."""
        return Level((1,) * len(self.stage_channels), self.whole.exits, self.whole.blocks)

    @property
    def largest(self) -> Level:
        """The whole network."""
        return self.whole

    @cached_property
    def layout(self) -> Layout:
        """The layout of the full network's flat vector."""
        return Layout.of(self.shapes(self.whole), ALIGNMENT)

    def narrowed(self, share: float) -> Level:
        """Return the level with a share of every stage's channels, rounded up."""
        whole = self.whole
        # Ten decimals first: a product such as 0.28 * 25 lies a little above the whole number it means.
        channels = tuple(ceil(round(share * full, 10)) for full in whole.channels)
        return Level(channels, whole.exits, whole.blocks)

    def shortened(self, depth: int, channels: Sequence[int], exits: Sequence[int]) -> Level:
        """Return the level that ends after so many blocks, given the channels of every stage."""
        blocks: list[int] = []
        for stage_blocks in self.blocks:
            left = depth - sum(blocks)
            blocks += [min(stage_blocks, left)] if left > 0 else []
        return Level(tuple(channels[: len(blocks)]), tuple(exits), tuple(blocks))

    def envelope(self, levels: Sequence[Level]) -> Level:
        """Return the level whose tensors hold all of these."""
        channels, blocks = (
            tuple(map(max, zip_longest(*parts, fillvalue=0)))
            for parts in ([one.channels for one in levels], [one.blocks for one in levels])
        )
        return Level(channels, tuple(sorted({number for one in levels for number in one.exits})), blocks)

    def columns(self, level: Level) -> dict[str, str]:
        """Return the choices as lists like [3, 7, 6, 7], and the divisor."""
        lists = {"channels": level.channels, "exits": level.exits, "blocks": level.blocks}
        return {**{name: str(list(values)) for name, values in lists.items()}, "divisor": str(level.divisor)}

    def read_columns(self, row: Mapping[str, str | None]) -> Level:
        """Return the level of a cache's row; ValueError where its columns are damaged."""
        channels, exits, blocks = (_parse_integers(row[name]) for name in ("channels", "exits", "blocks"))
        return Level(channels, exits, blocks, float(row["divisor"] or ""))

    def validate(self, level: Level) -> None:
        """Raise InvalidInput unless the level is a part of this network."""
        whole = self.whole
        fits = len(level.channels) <= len(whole.channels) and set(level.exits) <= set(whole.exits)
        # Blocks are left out at the end alone, since a layer's input is the whole of what precedes it.
        fits &= bool(level.blocks) == bool(whole.blocks) and level.blocks[:-1] == whole.blocks[: len(level.blocks) - 1]
        fits = fits and level.blocks[-1:] <= whole.blocks[len(level.blocks) - 1 : len(level.blocks)]
        fits &= self.activation == "after" or level.divisor == 1
        if not fits or any(part > full for part, full in zip(level.channels, whole.channels, strict=False)):
            raise InvalidInput(
                f"{level} is not in the network: it takes up to {list(whole.channels)} channels "
                f"and exits out of {list(whole.exits)}."
            )

    def shapes(self, level: Level) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor a level activates, in the order of the flat vector."""
        return {tensor.name: tensor.shape for tensor in self._tensors(level)}

    def macs(self, level: Level) -> int:
        """Return the multiply-accumulates of one inference that computes all the level's exits."""
        return sum(prod(tensor.shape) * tensor.macs for tensor in self._tensors(level))

    def convolution_macs(self, level: Level) -> int:
        """Return the multiply-accumulates of one inference, convolutions alone."""
        return sum(prod(tensor.shape) * tensor.macs for tensor in self._tensors(level) if len(tensor.shape) == 4)

    def position_macs(self, level: Level) -> Tensor:
        """Return what each position of the flat vector adds to the level's MACs, in int32; 0 outside the level."""
        flat = self.layout.zeros(torch.int32)
        views = self.layout.views(flat, self.shapes(level))
        for tensor in self._tensors(level):
            views[tensor.name].fill_(tensor.macs)
        return flat

    def parameters(self, level: Level) -> int:
        """Return the number of parameters."""
        return sum(map(prod, self.shapes(level).values()))

    def initial_weights(self, generator: np.random.Generator) -> Tensor:
        """Draw a flat float32 vector as the initialisation says, norms at scale 1 (or the branch's) and shift 0."""
        # Choice: torch's draws the head's bias too, for all methods alike; HeteroFL's own code starts it at 0.
        draw = draw_weights if self.initialisation == "torch" else draw_he_normal
        return draw(self.layout, generator, self.branch_scale)

    def forward(self, weights: Weights, inputs: Tensor, level: Level, layers: Layers) -> tuple[Tensor, ...]:
        """Return the logits (batch, classes) of every exit for normalised images (batch, channels, h, w)."""
        features = F.conv2d(inputs, weights["stem.conv"], stride=self.stem_stride, padding=1)
        if self.activation == "after":
            features = _rectified(weights, "stem.norm", features, layers, level.divisor)
        outputs = []
        for block in self._blocks_of(level):
            if self.activation == "after":
                features = _block_activated_after(weights, block.name, features, block.stride, layers, level.divisor)
            else:
                features = _block_activated_before(weights, block.name, features, block.stride, layers)
            if block.head is not None:
                if self.activation == "before":
                    features = _rectified(weights, "final_norm", features, layers)
                weight, bias = weights[f"{block.head}.weight"], weights[f"{block.head}.bias"]
                pooled = features.mean(dim=(2, 3), dtype=weight.dtype)  # (batch, channels)
                outputs.append(F.linear(pooled, weight, bias))
        if self.averages_exits:
            outputs.append(torch.stack(outputs).mean(dim=0))
        return tuple(outputs)

    def _blocks_of(self, level: Level) -> Iterator[_Block]:
        """Yield the blocks that a level uses, each with the name of the head that follows it, if one does."""
        count = 0
        for stage, num_blocks in enumerate(level.blocks or self.blocks[: len(level.channels)]):
            for block in range(num_blocks):
                count += 1
                ends_stage = block == self.blocks[stage] - 1
                number = count if level.blocks else stage + 1
                has_head = number in level.exits and (ends_stage or bool(level.blocks))
                stride = self.stage_strides[stage] if block == 0 else 1
                yield _Block(stage, block, stride, f"head{number}" if has_head else None)

    def _tensors(self, level: Level) -> Iterator[_Tensor]:
        self.validate(level)
        size = -(-self.image_size // self.stem_stride)
        incoming = level.channels[0]
        yield _Tensor("stem.conv", (incoming, self.image_channels, 3, 3), size**2)
        if self.activation == "after":
            yield from _norm_tensors("stem.norm", incoming)
        for block in self._blocks_of(level):
            size, width = -(-size // block.stride), level.channels[block.stage]
            projects = block.block == 0 and block.stage > 0
            yield from self._block_tensors(block.name, incoming, width, size**2, projects)
            incoming = width
            if block.head is not None:
                if self.activation == "before":
                    yield from _norm_tensors("final_norm", width)
                yield _Tensor(f"{block.head}.weight", (self.classes, width), 1)
                yield _Tensor(f"{block.head}.bias", (self.classes,))

    def _block_tensors(self, name: str, incoming: int, width: int, pixels: int, projects: bool) -> Iterator[_Tensor]:
        yield _Tensor(f"{name}.conv1", (width, incoming, 3, 3), pixels)
        yield from _norm_tensors(f"{name}.norm1", width if self.activation == "after" else incoming)
        yield _Tensor(f"{name}.conv2", (width, width, 3, 3), pixels)
        yield from _norm_tensors(f"{name}.norm2", width)
        if projects:
            yield _Tensor(f"{name}.shortcut", (width, incoming, 1, 1), pixels)
            if self.activation == "after":
                yield from _norm_tensors(f"{name}.shortcut_norm", width)


def _norm_tensors(name: str, channels: int) -> Iterator[_Tensor]:
    yield _Tensor(f"{name}.scale", (channels,))
    yield _Tensor(f"{name}.shift", (channels,))


def _block_activated_after(
    weights: Weights, name: str, features: Tensor, stride: int, layers: Layers, divisor: float
) -> Tensor:
    hidden = F.conv2d(features, weights[f"{name}.conv1"], stride=stride, padding=1)
    hidden = _rectified(weights, f"{name}.norm1", hidden, layers, divisor)
    hidden = F.conv2d(hidden, weights[f"{name}.conv2"], padding=1)
    hidden = _normalised(weights, f"{name}.norm2", hidden, layers)
    if f"{name}.shortcut" in weights:
        features = F.conv2d(features, weights[f"{name}.shortcut"], stride=stride)
        features = _normalised(weights, f"{name}.shortcut_norm", features, layers)
    return _divided(F.relu_(hidden + features), divisor)


def _block_activated_before(weights: Weights, name: str, features: Tensor, stride: int, layers: Layers) -> Tensor:
    activated = _rectified(weights, f"{name}.norm1", features, layers)
    if f"{name}.shortcut" in weights:
        features = F.conv2d(activated, weights[f"{name}.shortcut"], stride=stride)
    hidden = F.conv2d(activated, weights[f"{name}.conv1"], stride=stride, padding=1)
    hidden = _rectified(weights, f"{name}.norm2", hidden, layers)
    return F.conv2d(hidden, weights[f"{name}.conv2"], padding=1) + features


def _rectified(weights: Weights, name: str, features: Tensor, layers: Layers, divisor: float = 1.0) -> Tensor:
    return _divided(F.relu_(_normalised(weights, name, features, layers)), divisor)


def _divided(features: Tensor, divisor: float) -> Tensor:
    return features if divisor == 1 else features / divisor


def _normalised(weights: Weights, name: str, features: Tensor, layers: Layers) -> Tensor:
    return layers(name, features, weights[f"{name}.scale"], weights[f"{name}.shift"])


def _parse_integers(text: str | None) -> tuple[int, ...]:
    """Read a list like [3, 7, 6, 7]."""
    values = json.loads(text or "")
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise ValueError(f"{text!r} is no list of whole numbers")
    return tuple(values)
