"""3x3 convolutions of stride one and their gradients by the input, in CUDA C++: images wait in shared memory."""

from functools import cache

import torch
from torch import Tensor

from fedfeast.engines.graphs.halo.compiling import Kernel, Program
from fedfeast.engines.graphs.halo.tiles import ConvolutionTiles, convolution_tiles
from fedfeast.engines.graphs.kernels.features import Norm, Statistics, empty_features


def convolve(features: Tensor, weight: Tensor, counters: Tensor, epsilon: float) -> tuple[Tensor, Statistics]:
    """Return the convolution of channels-last features, and its batch statistics."""
    channels = weight.shape[0]
    mean, inverse_deviation = torch.empty(2, channels, dtype=torch.float32, device=features.device)
    out = _launch(
        features, weight, channels, counters, (mean, inverse_deviation), epsilon=epsilon, backward=False
    )  # fmt: skip
    return out, Statistics(mean, inverse_deviation)


def input_gradient(
    gradient: Tensor,
    weight: Tensor,
    counters: Tensor,
    added: Tensor | None = None,
    masked_by: Tensor | None = None,
    norm: Norm | None = None,
    rectified_by_norm: bool = False,
) -> Tensor:
    """Return the gradient by a convolution's input; what follows it is as in ``products.input_gradient``."""
    results = (norm.shift_gradient, norm.scale_gradient) if norm else None
    return _launch(
        gradient, weight, weight.shape[1], counters, results, backward=True,
        added=added, masked_by=masked_by, norm=norm, rectified_by_norm=rectified_by_norm,
    )  # fmt: skip


@cache
def _kernel(
    tiles: ConvolutionTiles, backward: bool, statistics: bool, added: bool, masked: bool, norm: int
) -> Kernel:
    flags = {"BACKWARD": backward, "STATISTICS": statistics, "ADDED": added, "MASKED": masked, "NORM": norm}
    program = Program("convolution.cuh", {**tiles.macros(), **{name: int(value) for name, value in flags.items()}})
    return program.kernel("convolve", tiles.shared_bytes, tiles.threads)


def _launch(
    features: Tensor,
    weight: Tensor,
    outgoing: int,
    counters: Tensor,
    results: tuple[Tensor, Tensor] | None,
    backward: bool,
    added: Tensor | None = None,
    masked_by: Tensor | None = None,
    norm: Norm | None = None,
    rectified_by_norm: bool = False,
    epsilon: float = 0.0,
) -> Tensor:
    num_images, incoming, side, _ = features.shape
    tiles = convolution_tiles(side, num_images, incoming, outgoing)
    grid = (*tiles.grid, tiles.splits)
    out = empty_features((num_images, outgoing, side, side), features)
    partials = None
    if results is not None:
        partials = features.new_empty(grid[0] * grid[1] * 16 * tiles.out_octets, dtype=torch.float32)
    workspace = features.new_empty(tiles.workspace, dtype=torch.float32) if tiles.splits > 1 else None
    first, second = results or (None, None)
    norm_kind = 0 if norm is None else 1 if rectified_by_norm else 2
    kernel = _kernel(
        tiles, backward, results is not None and norm is None, added is not None, masked_by is not None, norm_kind
    )
    kernel.launch(
        grid, features, weight, out, added, masked_by, norm.features if norm else None,
        norm.statistics.mean if norm else None, norm.statistics.inverse_deviation if norm else None,
        norm.scale if norm else None, norm.shift if norm else None, workspace, partials, counters, first, second,
        num_images, incoming, outgoing, epsilon,
    )  # fmt: skip
    return out
