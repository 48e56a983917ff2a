"""The elastic ResNet: one flat vector of weights, every architecture of a space (Sec. 3.2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from fedfeast.networks.cost import count_convolution_macs, count_macs, count_parameters
from fedfeast.networks.initialisation import draw_weights
from fedfeast.networks.layers import Layers, Weights
from fedfeast.networks.layout import ALIGNMENT, Layout
from fedfeast.networks.space import Architecture, SearchSpace


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
        return draw_weights(self.layout, generator)

    def forward(
        self, weights: Weights, images: Tensor, architecture: Architecture, layers: Layers
    ) -> tuple[Tensor, ...]:
        """Return the logits (batch, classes), the only output, of normalised images (batch, channels, h, w)."""
        features = layers.stem(weights, images, self.space.stem_stride)
        for stage, extra_blocks in enumerate(architecture.depths):
            for block in range(1 + extra_blocks):
                stride = self.space.stage_strides[stage] if block == 0 else 1
                features = layers.block(weights, f"stage{stage + 1}.block{block}", features, stride)
        pooled = features.mean(dim=(2, 3), dtype=weights["head.weight"].dtype)  # (batch, channels)
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
