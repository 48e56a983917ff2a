"""Where the partial gradients of an architecture's tensors lie, known before any pass runs."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from fedfeast.engines.graphs.halo.tiles import WeightTiles, knows, weight_tiles
from fedfeast.engines.graphs.tiles import Cut, weight_cut
from fedfeast.networks import Network, Weights
from fedfeast.networks.layers import EPSILON, Layers

ALIGNMENT = 8  # elements: two vector loads of float32
Size = tuple[int, int, int, int, int]  # of a convolution: batch, height, width, stride, kernel


@dataclass(frozen=True)
class Place:
    """A range of the gradient buffer: several partial gradients of one tensor, to be added up."""

    start: int
    size: int  # of one part
    parts: int = 1
    cut: Cut | WeightTiles | None = None  # of a convolution's weight: for kernels in Triton or in CUDA C++

    def of(self, gradients: Tensor) -> Tensor:
        """Return this place in a gradient buffer, flat."""
        return gradients[self.start : self.start + self.parts * self.size]


@dataclass(frozen=True)
class GradientPlan:
    """The place of every tensor of an architecture, in the order of its shapes."""

    places: Mapping[str, Place]
    size: int
    geometries: frozenset[Size] = frozenset()  # of the convolutions whose kernels, in Triton, look pixels up in tables


def plan_gradients(
    network: Network, architecture: Hashable, image_shape: tuple[int, ...], in_cuda: bool = False
) -> GradientPlan:
    """Lay out the partial gradients of an architecture for images (batch, channels, height, width).

    With ``in_cuda``, convolutions that the kernels in CUDA C++ know are left to these.
    """
    shapes = network.shapes(architecture)
    weights = shapes_alone(shapes)
    measuring = _Measuring(in_cuda)
    network.forward(weights, torch.empty(image_shape, device="meta"), architecture, measuring)
    return replace(_lay_out(shapes, measuring.cuts), geometries=frozenset(measuring.geometries))


def plan_whole_gradients(network: Network, architecture: Hashable) -> GradientPlan:
    """Lay out one whole gradient for every tensor, as autograd gives it."""
    return _lay_out(network.shapes(architecture), {})


def shapes_alone(shapes: Mapping[str, tuple[int, ...]], convolutions: torch.dtype | None = None) -> Weights:
    """Return weights whose convolutions have no memory, for passes that look at shapes alone."""
    return {
        name: torch.empty(shape, dtype=convolutions, device="meta", memory_format=torch.channels_last)
        if len(shape) == 4
        else torch.empty(shape)
        for name, shape in shapes.items()
    }


def convolved_alone(weight: Tensor, features: Tensor, stride: int) -> Tensor:
    """Return the output of a convolution padded to keep its input's size at stride 1, as a shape alone."""
    batch, _, height, width = features.shape
    size = batch, weight.shape[0], (height - 1) // stride + 1, (width - 1) // stride + 1
    return torch.empty(size, device="meta")


def blank_for_head(features: Tensor) -> Tensor:
    """Return a pixel for the head to read where the last features have no memory."""
    # Without memory the head's mean, as ``new_empty`` would, loads PyTorch's own compiler, which takes a second.
    return torch.zeros(1, features.shape[1], 1, 1)


def _lay_out(shapes: Mapping[str, tuple[int, ...]], cuts: Mapping[str, Cut | WeightTiles]) -> GradientPlan:
    places, end = {}, 0
    for name, shape in shapes.items():
        start = -(-end // ALIGNMENT) * ALIGNMENT
        cut = cuts.get(name)
        places[name] = Place(start, prod(shape), cut.parts if cut else 1, cut)
        end = start + places[name].parts * places[name].size
    return GradientPlan(places, end)


class _Measuring(Layers):
    """Computes shapes alone, and how each convolution's weight gradient is to be cut."""

    def __init__(self, in_cuda: bool) -> None:
        self._in_cuda = in_cuda
        self.cuts: dict[str, Cut | WeightTiles] = {}
        self.geometries: set[Size] = set()

    def __call__(
        self, name: str, features: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float = EPSILON
    ) -> Tensor:
        return features

    def stem(self, weights: Weights, images: Tensor, stride: int) -> Tensor:
        return self._convolve(weights, "stem.conv", images, stride)

    def block(self, weights: Weights, name: str, features: Tensor, stride: int, signed: bool = False) -> Tensor:
        hidden = self._convolve(weights, f"{name}.conv1", features, stride)
        out = self._convolve(weights, f"{name}.conv2", hidden, 1)
        if f"{name}.shortcut" in weights:
            self._convolve(weights, f"{name}.shortcut", features[:, :, ::stride, ::stride], 1)
        return out

    def end(self, features: Tensor) -> Tensor:
        return blank_for_head(features)

    def _convolve(self, weights: Weights, name: str, features: Tensor, stride: int) -> Tensor:
        outgoing, incoming, kernel, _ = weights[name].shape
        batch, _, height, width = features.shape
        cut: Cut | WeightTiles | None = None
        if self._in_cuda and knows(incoming, outgoing, kernel, height, width):
            cut = weight_tiles(width, batch, max(incoming, outgoing), min(incoming, outgoing))
        out = convolved_alone(weights[name], features, stride)
        if cut is None:
            self.geometries.add((batch, height, width, stride, kernel))
            num_pixels = batch * out.shape[2] * out.shape[3]
            cut = weight_cut(num_pixels, incoming, outgoing, kernel * kernel, stride)
        self.cuts[name] = cut
        return out
