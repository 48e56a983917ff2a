"""The elastic ResNet: one flat vector of weights, every architecture of a space (Sec. 3.2)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.networks.cost import count_convolution_macs, count_macs, count_parameters
from fedfeast.networks.initialisation import draw_weights, refuse_branch_scale
from fedfeast.networks.layers import Layers, Weights
from fedfeast.networks.layout import ALIGNMENT, Layout
from fedfeast.networks.space import Architecture, SearchSpace

Number = TypeVar("Number", int, float)

# Whether what a residual branch adds is rectified before the addition, as in the paper's network, or has either sign.
Branch = Literal["rectified", "signed"]


class Block(NamedTuple):
    """A residual block of an architecture."""

    name: str
    is_first: bool  # of its stage: it projects what its branch is added to
    stride: int
    middle: int  # channels between its two convolutions
    width: int  # channels that leave it


@dataclass(frozen=True)
class ElasticResNet:
    """A network whose architecture is an argument; weights are leading slices of one flat vector."""

    space: SearchSpace
    branch: Branch = "rectified"
    branch_scale: float = 1.0  # what the scale of a residual branch's last norm starts with

    def __post_init__(self) -> None:
        refuse_branch_scale(self.branch_scale)
        if self.branch not in ("rectified", "signed"):
            raise InvalidInput(f'network.branch = "{self.branch}": give "rectified" or "signed".')

    @cached_property
    def layout(self) -> Layout:
        """The layout of the full supernet's flat vector."""
        return Layout.of(self.shapes(self.space.largest), ALIGNMENT)

    @property
    def draws(self) -> bool:
        """No layer drops anything."""
        return False

    @property
    def smallest(self) -> Architecture:
        """The least network of the space."""
        return self.space.smallest

    @property
    def largest(self) -> Architecture:
        """The full supernet."""
        return self.space.largest

    def validate(self, architecture: Architecture) -> None:
        """Raise InvalidInput unless the architecture lies in the space."""
        self.space.validate(architecture)

    def envelope(self, architectures: Sequence[Architecture]) -> Architecture:
        """Return d*, w* as an architecture whose tensors hold every expansion the space allows (Eq. 4)."""
        depths = tuple(map(max, zip(*(one.depths for one in architectures), strict=True)))
        width_indices = tuple(map(max, zip(*(one.width_indices for one in architectures), strict=True)))
        return self.space.envelope(depths, width_indices)

    def columns(self, architecture: Architecture) -> dict[str, str]:
        """Return the MACs of the convolutions, and the choices as lists like [3, 7, 6, 7]."""
        choices = (architecture.depths, architecture.expansions, architecture.width_indices)
        listed = {name: str(list(values)) for name, values in zip(("d", "e", "w_indices"), choices, strict=True)}
        return {"conv_macs": str(self.convolution_macs(architecture)), **listed}

    def read_columns(self, row: Mapping[str, str | None]) -> Architecture:
        """Return the architecture of a cache's row; ValueError where its columns are damaged."""
        depths, width_indices = (_parse_list(row["d"], int), _parse_list(row["w_indices"], int))
        return Architecture(depths, _parse_list(row["e"], float), width_indices)

    def shapes(self, architecture: Architecture) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor an architecture activates, in forward order."""
        return dict(self._tensors(architecture))

    def macs(self, architecture: Architecture) -> int:
        """Return the multiply-accumulates of one inference."""
        return count_macs(self.space, architecture)

    def convolution_macs(self, architecture: Architecture) -> int:
        """Return the multiply-accumulates of one inference, convolutions alone."""
        return count_convolution_macs(self.space, architecture)

    def parameters(self, architecture: Architecture) -> int:
        """Return the number of parameters."""
        return count_parameters(self.space, architecture)

    def initial_weights(self, generator: np.random.Generator) -> Tensor:
        """Draw a flat float32 vector: torch's default initialisation, norms at scale 1 (or a branch's) and shift 0."""
        return draw_weights(self.layout, generator, self.branch_scale)

    def forward(
        self, weights: Weights, inputs: Tensor, architecture: Architecture, layers: Layers
    ) -> tuple[Tensor, ...]:
        """Return the logits (batch, classes), the only output, of normalised images (batch, channels, h, w)."""
        features = self.stem(weights, inputs, layers)
        for block in self.blocks(architecture):
            features = self.block(weights, block, features, layers)
        return (self.head(weights, features, layers),)

    def blocks(self, architecture: Architecture) -> Iterator[Block]:
        """Yield an architecture's blocks in forward order."""
        for stage, extra_blocks in enumerate(architecture.depths):
            middle, width = self.space.middle_width(architecture, stage), self.space.stage_width(architecture, stage)
            for block in range(1 + extra_blocks):
                stride = self.space.stage_strides[stage] if block == 0 else 1
                yield Block(f"stage{stage + 1}.block{block}", block == 0, stride, middle, width)

    def stem(self, weights: Weights, inputs: Tensor, layers: Layers) -> Tensor:
        """Return what the first block is given, of normalised images."""
        return layers.stem(weights, inputs, self.space.stem_stride)

    def block(self, weights: Weights, block: Block, features: Tensor, layers: Layers) -> Tensor:
        """Return what leaves a block."""
        return layers.block(weights, block.name, features, block.stride, self.branch == "signed")

    def head(self, weights: Weights, features: Tensor, layers: Layers) -> Tensor:
        """Return the logits of what left the last block."""
        pooled = layers.end(features).mean(dim=(2, 3), dtype=weights["head.weight"].dtype)  # (batch, channels)
        return F.linear(pooled, weights["head.weight"], weights["head.bias"])

    def _tensors(self, architecture: Architecture) -> Iterator[tuple[str, tuple[int, ...]]]:
        space = self.space
        incoming = space.stem_width(architecture)
        yield "stem.conv", (incoming, space.image_channels, 3, 3)
        yield from _norm_tensors("stem.norm", incoming)
        for name, is_first, _, middle, width in self.blocks(architecture):
            yield f"{name}.conv1", (middle, incoming, 3, 3)
            yield from _norm_tensors(f"{name}.norm1", middle)
            yield f"{name}.conv2", (width, middle, 3, 3)
            yield from _norm_tensors(f"{name}.norm2", width)
            if is_first:
                yield f"{name}.shortcut", (width, incoming, 1, 1)
                yield from _norm_tensors(f"{name}.shortcut_norm", width)
            incoming = width
        yield "head.weight", (space.classes, incoming)
        yield "head.bias", (space.classes,)


@dataclass(frozen=True)
class SlicedVariant(ElasticResNet):
    """One variant of an elastic ResNet with nothing around it, and networks of shares of its width."""

    whole: Architecture = field(kw_only=True)

    @classmethod
    def of(cls, network: ElasticResNet, architecture: Architecture, shares: Sequence[float]) -> "SlicedVariant":
        """Return the variant with room in its space for these shares of its widths."""
        space = network.space
        own = sorted({space.widths[index] for index in architecture.width_indices})
        widths = tuple(sorted({round(share * width, 10) for share in (1.0, *shares) for width in own}))
        indices = tuple(widths.index(round(space.widths[index], 10)) for index in architecture.width_indices)
        whole = replace(architecture, width_indices=indices)
        return cls(replace(space, widths=widths), network.branch, network.branch_scale, whole=whole)

    @cached_property
    def layout(self) -> Layout:
        """The layout of the variant's flat vector."""
        return Layout.of(self.shapes(self.whole), ALIGNMENT)

    @property
    def largest(self) -> Architecture:
        """The variant."""
        return self.whole

    @property
    def classes(self) -> int:
        """The classes that it tells apart."""
        return self.space.classes

    def narrowed(self, share: float) -> Architecture:
        """Return the network with a share of the stem's and every stage's width, each rounded as the space rounds."""
        widths = self.space.widths
        narrow = tuple(widths.index(round(share * widths[index], 10)) for index in self.whole.width_indices)
        return replace(self.whole, width_indices=narrow)


def _norm_tensors(name: str, channels: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.scale", (channels,)
    yield f"{name}.shift", (channels,)


def _parse_list(text: str | None, kind: type[Number]) -> tuple[Number, ...]:
    """Read a list like [3, 7, 6, 7] of one kind of number."""
    values = json.loads(text or "")
    if not isinstance(values, list) or any(type(value) not in (int, kind) for value in values):
        raise ValueError(f"{text!r} is no list of {kind.__name__}")
    return tuple(kind(value) for value in values)
