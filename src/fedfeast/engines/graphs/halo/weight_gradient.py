"""Gradients by the weights of 3x3 convolutions of stride one, in CUDA C++: images wait in shared memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from torch import Tensor

from fedfeast.engines.graphs.halo.compiling import Kernel, program_of
from fedfeast.engines.graphs.halo.tiles import WeightTiles
from fedfeast.engines.graphs.tiles import ceil_div

MOST_LAYERS = 18  # of a launch


@dataclass(frozen=True, eq=False)
class Layer:
    """A convolution: its input, the gradient by its output, and room for that by its weight (parts, out, 3, 3, in)."""

    features: Tensor
    gradient: Tensor
    out: Tensor

    @property
    def narrow_is_input(self) -> bool:
        """Whether the input has fewer channels than the output."""
        return self.features.shape[1] < self.gradient.shape[1]

    @property
    def size(self) -> tuple[int, int]:
        """The channels of both, the larger first."""
        wide, narrow = self.wide_and_narrow
        return wide.shape[1], narrow.shape[1]

    @property
    def wide_and_narrow(self) -> tuple[Tensor, Tensor]:
        """The tensor of more channels, and the one that is seen through nine taps."""
        return (self.gradient, self.features) if self.narrow_is_input else (self.features, self.gradient)


def weight_gradients(layers: Sequence[Layer], tiles: WeightTiles, num_images: Tensor | None = None) -> None:
    """Store the partial sums of the gradients by the weights of several layers of one size."""
    wide, narrow = layers[0].wide_and_narrow
    grid = (tiles.parts, ceil_div(wide.shape[1], tiles.wide_channels), len(layers))
    tensors = [tensor for layer in layers for tensor in (*layer.wide_and_narrow, layer.out)]
    is_input = sum(1 << place for place, layer in enumerate(layers) if layer.narrow_is_input)
    _kernel(tiles).launch(
        grid, *tensors, *(None,) * (3 * (MOST_LAYERS - len(layers))), num_images, is_input,
        wide.shape[0], tiles.chunks_a_part, wide.shape[1], narrow.shape[1],
    )  # fmt: skip


@cache
def _kernel(tiles: WeightTiles) -> Kernel:
    program = program_of("weight_gradient.cuh", tuple(tiles.macros().items()))
    return program.kernel("weight_gradients", tiles.shared_bytes, tiles.threads)
