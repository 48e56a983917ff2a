"""3x3 convolutions of stride one and their gradients by the input, in CUDA C++: images wait in shared memory.

What features are made of, and what follows the product, is done on the way in and on the way out.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from fedfeast.engines.graphs.halo.compiling import Kernel, program_of
from fedfeast.engines.graphs.halo.tiles import ConvolutionTiles, convolution_tiles
from fedfeast.engines.graphs.kernels.features import Features, Norm, Statistics, Then, empty_features


@dataclass(frozen=True, eq=False)
class _Sums:
    """Where two sums a channel go; in a forward pass the mean and the inverse deviation, to which epsilon belongs."""

    first: Tensor
    second: Tensor
    epsilon: float = 0.0


def convolve(
    features: Features, weight: Tensor, counters: Tensor, epsilon: float, num_images: Tensor | None = None
) -> tuple[Tensor, Statistics, Tensor]:
    """Return the convolution of channels-last features, its batch statistics, and the features."""
    mean, inverse_deviation = torch.empty((2, weight.shape[0]), device=weight.device)
    sums = _Sums(mean, inverse_deviation, epsilon)
    out, made = _launch(features, weight, Then(), counters, sums, num_images, backward=False)
    return out, Statistics(mean, inverse_deviation), made


def input_gradient(
    gradient: Features, weight: Tensor, counters: Tensor, then: Then, num_images: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the gradient by a convolution's input, and the gradient by its output that was given or made."""
    sums = _Sums(then.norm.shift_gradient, then.norm.scale_gradient) if then.norm else None
    return _launch(gradient, weight, then, counters, sums, num_images, backward=True)


def makes(features: Features, weight: Tensor, backward: bool) -> bool:
    """Return whether features are better made on the way in than before: not where several blocks would make many."""
    num_images, incoming, side, _ = features.first.shape
    outgoing = weight.shape[1 if backward else 0]
    return incoming <= outgoing or convolution_tiles(side, num_images, incoming, outgoing, features.made).grid[1] == 1


@cache
def _kernel(tiles: ConvolutionTiles, backward: bool, added: bool, masked: bool, norm: int, signed: bool) -> Kernel:
    flags = {"BACKWARD": backward, "STATISTICS": not backward, "ADDED": added, "MASKED": masked, "NORM": norm}
    if signed:
        flags["SIGNED"] = True
    macros = {**tiles.macros(), **{name: int(value) for name, value in flags.items()}}
    program = program_of("convolution.cuh", tuple(macros.items()))
    return program.kernel("convolve", tiles.shared_bytes, tiles.threads)


def _launch(
    features: Features,
    weight: Tensor,
    then: Then,
    counters: Tensor,
    sums: _Sums | None,
    counted_images: Tensor | None,
    *,
    backward: bool,
) -> tuple[Tensor, Tensor]:
    """Return what a launch stores, and the features that it was given or made."""
    first = features.first
    num_images, incoming, side, _ = first.shape
    outgoing = weight.shape[1 if backward else 0]
    tiles = convolution_tiles(side, num_images, incoming, outgoing, features.made)
    out = empty_features((num_images, outgoing, side, side), first)
    made = first
    if features.made:
        made = empty_features(first.shape, first) if features.room is None else features.room
    partials = workspace = None
    if sums is not None:
        partials = torch.empty(tiles.grid[0] * tiles.grid[1] * 16 * tiles.out_octets, device=first.device)
    if tiles.splits > 1:
        workspace = torch.empty(tiles.workspace, device=first.device)
    norm_kind = 0 if then.norm is None else 1 if then.rectified_by_norm else 3 if then.signed else 2
    kernel = _kernel(tiles, backward, then.added is not None, then.masked_by is not None, norm_kind, features.signed)
    kernel.launch(
        (*tiles.grid, tiles.splits), first, features.second, made, *_parameters(features.norm),
        *((features.norm.shift_gradient, features.norm.scale_gradient) if features.norm else (None, None)),
        *_parameters(features.added_norm), weight, out, then.added, then.masked_by,
        then.norm.features if then.norm else None, *_parameters(then.norm),
        workspace, partials, counters, *((sums.first, sums.second) if sums else (None, None)),
        counted_images, num_images, incoming, outgoing, sums.epsilon if sums else 0.0,
    )  # fmt: skip
    return out, made


def _parameters(norm: Norm | None) -> tuple[Tensor | None, ...]:
    if norm is None:
        return None, None, None, None
    return norm.statistics.mean, norm.statistics.inverse_deviation, norm.scale, norm.shift
