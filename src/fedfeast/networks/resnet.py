"""The CIFAR ResNet-18 of HeteroFL, ScaleFL, FIARSE, FjORD and FedRolex: one flat vector, every width and depth."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.networks.initialisation import draw_weights
from fedfeast.networks.layers import Layers, Weights
from fedfeast.networks.layout import ALIGNMENT, Layout
from fedfeast.networks.space import LARGEST


@dataclass(frozen=True)
class Level:
    """One network of the family: the channels of each stage it uses and the stages after which it gives logits."""

    channels: tuple[int, ...]  # the stem has the first stage's
    exits: tuple[int, ...]  # counted from 1, rising; the last is served

    def __post_init__(self) -> None:
        if not self.channels or min(self.channels) < 1:
            raise InvalidInput(f"A level's channels are {list(self.channels)}: give at least 1 for every stage used.")
        if list(self.exits) != sorted(set(self.exits)) or not self.exits or self.exits[0] < 1:
            raise InvalidInput(f"A level's exits are {list(self.exits)}: list stages from 1 on, once, in rising order.")
        if self.exits[-1] != len(self.channels):
            raise InvalidInput(
                f"A level's last exit is {self.exits[-1]} of {len(self.channels)} stages: "
                "end the channels at the stage of the last exit."
            )


class _Tensor(NamedTuple):
    name: str
    shape: tuple[int, ...]
    macs: int = 0  # of one scalar for one example


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
        if self.early_exits and self.activation == "before":
            raise InvalidInput(
                'resnet.early_exits = true with resnet.activation = "before": early exits need activation "after".'
            )

    @property
    def draws(self) -> bool:
        """No layer drops anything."""
        return False

    @property
    def whole(self) -> Level:
        """The full network with all the exits it has."""
        last = len(self.stage_channels)
        return Level(self.stage_channels, tuple(range(1 if self.early_exits else last, last + 1)))

    @cached_property
    def layout(self) -> Layout:
        """The layout of the full network's flat vector."""
        return Layout.of(self.shapes(self.whole), ALIGNMENT)

    def validate(self, level: Level) -> None:
        """Raise InvalidInput unless the level is a part of this network."""
        whole = self.whole
        fits = len(level.channels) <= len(whole.channels) and set(level.exits) <= set(whole.exits)
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
        """Draw a flat float32 vector: torch's default initialisation, norms at scale 1 and shift 0."""
        # Choice: the head's bias too, for all methods alike; HeteroFL's own code starts it at 0.
        return draw_weights(self.layout, generator)

    def forward(self, weights: Weights, inputs: Tensor, level: Level, layers: Layers) -> tuple[Tensor, ...]:
        """Return the logits (batch, classes) of every exit for normalised images (batch, channels, h, w)."""
        run_block = _block_activated_after if self.activation == "after" else _block_activated_before
        features = F.conv2d(inputs, weights["stem.conv"], stride=self.stem_stride, padding=1)
        if self.activation == "after":
            features = F.relu_(_normalised(weights, "stem.norm", features, layers))
        outputs = []
        for stage in range(len(level.channels)):
            for block in range(self.blocks[stage]):
                stride = self.stage_strides[stage] if block == 0 else 1
                features = run_block(weights, f"stage{stage + 1}.block{block}", features, stride, layers)
            if stage + 1 in level.exits:
                if self.activation == "before":
                    features = F.relu_(_normalised(weights, "final_norm", features, layers))
                weight, bias = weights[f"head{stage + 1}.weight"], weights[f"head{stage + 1}.bias"]
                pooled = features.mean(dim=(2, 3), dtype=weight.dtype)  # (batch, channels)
                outputs.append(F.linear(pooled, weight, bias))
        return tuple(outputs)

    def _tensors(self, level: Level) -> Iterator[_Tensor]:
        self.validate(level)
        size = -(-self.image_size // self.stem_stride)
        incoming = level.channels[0]
        yield _Tensor("stem.conv", (incoming, self.image_channels, 3, 3), size**2)
        if self.activation == "after":
            yield from _norm_tensors("stem.norm", incoming)
        for stage, width in enumerate(level.channels):
            size = -(-size // self.stage_strides[stage])
            for block in range(self.blocks[stage]):
                name = f"stage{stage + 1}.block{block}"
                yield from self._block_tensors(name, incoming, width, size**2, projects=block == 0 and stage > 0)
                incoming = width
            if stage + 1 in level.exits:
                if self.activation == "before":
                    yield from _norm_tensors("final_norm", width)
                yield _Tensor(f"head{stage + 1}.weight", (self.classes, width), 1)
                yield _Tensor(f"head{stage + 1}.bias", (self.classes,))

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


def _block_activated_after(weights: Weights, name: str, features: Tensor, stride: int, layers: Layers) -> Tensor:
    hidden = F.conv2d(features, weights[f"{name}.conv1"], stride=stride, padding=1)
    hidden = F.relu_(_normalised(weights, f"{name}.norm1", hidden, layers))
    hidden = F.conv2d(hidden, weights[f"{name}.conv2"], padding=1)
    hidden = _normalised(weights, f"{name}.norm2", hidden, layers)
    if f"{name}.shortcut" in weights:
        features = F.conv2d(features, weights[f"{name}.shortcut"], stride=stride)
        features = _normalised(weights, f"{name}.shortcut_norm", features, layers)
    return F.relu_(hidden + features)


def _block_activated_before(weights: Weights, name: str, features: Tensor, stride: int, layers: Layers) -> Tensor:
    activated = F.relu_(_normalised(weights, f"{name}.norm1", features, layers))
    if f"{name}.shortcut" in weights:
        features = F.conv2d(activated, weights[f"{name}.shortcut"], stride=stride)
    hidden = F.conv2d(activated, weights[f"{name}.conv1"], stride=stride, padding=1)
    hidden = F.relu_(_normalised(weights, f"{name}.norm2", hidden, layers))
    return F.conv2d(hidden, weights[f"{name}.conv2"], padding=1) + features


def _normalised(weights: Weights, name: str, features: Tensor, layers: Layers) -> Tensor:
    return layers(name, features, weights[f"{name}.scale"], weights[f"{name}.shift"])
