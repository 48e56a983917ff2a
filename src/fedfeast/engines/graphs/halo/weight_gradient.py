"""Gradients by the weights of 3x3 convolutions of stride one, in CUDA C++: images wait in shared memory."""

from functools import cache

from torch import Tensor

from fedfeast.engines.graphs.halo.compiling import Kernel, Program
from fedfeast.engines.graphs.halo.tiles import WeightTiles
from fedfeast.engines.graphs.tiles import ceil_div


def weight_gradient(features: Tensor, gradient: Tensor, out: Tensor, tiles: WeightTiles) -> None:
    """Store the partial sums (parts, out, 3, 3, in) of the gradient by a convolution's weight."""
    narrow_is_input = features.shape[1] < gradient.shape[1]
    wide, narrow = (gradient, features) if narrow_is_input else (features, gradient)
    grid = (tiles.parts, ceil_div(wide.shape[1], tiles.wide_channels), 1)
    _kernel(tiles, narrow_is_input).launch(
        grid, wide, narrow, out, wide.shape[0], tiles.chunks, tiles.chunks_a_part, wide.shape[1], narrow.shape[1]
    )


@cache
def _kernel(tiles: WeightTiles, narrow_is_input: bool) -> Kernel:
    program = Program("weight_gradient.cuh", {**tiles.macros(), "NARROW_IS_INPUT": int(narrow_is_input)})
    return program.kernel("weight_gradient", tiles.shared_bytes, tiles.threads)
