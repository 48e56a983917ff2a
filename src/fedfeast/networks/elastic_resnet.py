"""The elastic ResNet: one flat vector of weights, every architecture of a space (Sec. 3.2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedfeast.networks.cost import count_convolution_macs, count_macs, count_parameters
from fedfeast.networks.layout import Layout
from fedfeast.networks.network import Weights
from fedfeast.networks.normalisation import Normalise
from fedfeast.networks.space import Architecture, SearchSpace

ALIGNMENT = 32  # elements: 128 bytes in float32, what vector loads of any device want


@dataclass(frozen=True)
class ElasticResNet:
    """A network whose architecture is an argument; weights are leading slices of one flat vector."""

    space: SearchSpace

    @cached_property
    def layout(self) -> Layout:
        """The layout of the full supernet's flat vector."""
        return Layout.of(self.shapes(self.space.largest), ALIGNMENT)

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
        """Draw a flat float32 vector: torch's default initialisation, norms at scale 1 and shift 0."""
        flat = self.layout.zeros(torch.float32)
        for name, view in self.layout.views(flat).items():
            if name.endswith(".scale"):
                view.fill_(1.0)
            elif not name.endswith(".shift"):
                weight = "head.weight" if name == "head.bias" else name
                bound = 1.0 / sqrt(np.prod(self.layout.shapes[weight][1:]))
                drawn = generator.random(tuple(view.shape), dtype=np.float32)
                view.copy_(torch.from_numpy(drawn).mul_(2 * bound).sub_(bound))
        return flat

    def forward(
        self, weights: Weights, images: Tensor, architecture: Architecture, normalise: Normalise
    ) -> tuple[Tensor, ...]:
        """Return the logits (batch, classes), the only output, of normalised images (batch, channels, h, w)."""
        stem = F.conv2d(images, weights["stem.conv"], stride=self.space.stem_stride, padding=1)
        features = F.relu_(_normalised(weights, "stem.norm", stem, normalise))
        for stage, extra_blocks in enumerate(architecture.depths):
            for block in range(1 + extra_blocks):
                name = f"stage{stage + 1}.block{block}"
                stride = self.space.stage_strides[stage] if block == 0 else 1
                features = _block(weights, name, features, stride, normalise)
        pooled = features.mean(dim=(2, 3))  # (batch, channels)
        return (F.linear(pooled, weights["head.weight"], weights["head.bias"]),)

    def _tensors(self, architecture: Architecture) -> Iterator[tuple[str, tuple[int, ...]]]:
        space = self.space
        incoming = space.stem_width(architecture)
        yield "stem.conv", (incoming, space.image_channels, 3, 3)
        yield from _norm_tensors("stem.norm", incoming)
        for stage, extra_blocks in enumerate(architecture.depths):
            width, middle = space.stage_width(architecture, stage), space.middle_width(architecture, stage)
            for block in range(1 + extra_blocks):
                name = f"stage{stage + 1}.block{block}"
                yield f"{name}.conv1", (middle, incoming, 3, 3)
                yield from _norm_tensors(f"{name}.norm1", middle)
                yield f"{name}.conv2", (width, middle, 3, 3)
                yield from _norm_tensors(f"{name}.norm2", width)
                if block == 0:
                    yield f"{name}.shortcut", (width, incoming, 1, 1)
                    yield from _norm_tensors(f"{name}.shortcut_norm", width)
                incoming = width
        yield "head.weight", (space.classes, incoming)
        yield "head.bias", (space.classes,)


def _norm_tensors(name: str, channels: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.scale", (channels,)
    yield f"{name}.shift", (channels,)


def _normalised(weights: Weights, name: str, features: Tensor, normalise: Normalise) -> Tensor:
    return normalise(name, features, weights[f"{name}.scale"], weights[f"{name}.shift"])


def _block(weights: Weights, name: str, features: Tensor, stride: int, normalise: Normalise) -> Tensor:
    """Two 3x3 convolutions, rectified before the addition too; the first block of a stage projects its shortcut."""
    hidden = F.conv2d(features, weights[f"{name}.conv1"], stride=stride, padding=1)
    hidden = F.relu_(_normalised(weights, f"{name}.norm1", hidden, normalise))
    hidden = F.conv2d(hidden, weights[f"{name}.conv2"], padding=1)
    hidden = F.relu_(_normalised(weights, f"{name}.norm2", hidden, normalise))
    if f"{name}.shortcut" in weights:
        if stride > 1:
            features = F.avg_pool2d(features, stride, ceil_mode=True)
        features = F.conv2d(features, weights[f"{name}.shortcut"])
        features = _normalised(weights, f"{name}.shortcut_norm", features, normalise)
    return F.relu(hidden + features)
