"""Channels-last features, and the batch normalisations they go through, as kernels hand them on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Statistics:
    """What batch normalisation knows of its input, per channel in float32."""

    mean: Tensor
    inverse_deviation: Tensor


@dataclass(frozen=True, eq=False)
class Norm:
    """A batch normalisation: its input, statistics and parameters, and where its parameters' gradients belong."""

    features: Tensor
    statistics: Statistics
    scale: Tensor
    shift: Tensor
    scale_gradient: Tensor
    shift_gradient: Tensor


@dataclass(frozen=True, eq=False)
class Features:
    """What is convolved: a tensor, or what is still to be made of one or two; ``made`` is as in convolution.cuh."""

    first: Tensor
    second: Tensor | None = None
    norm: Norm | None = None
    added_norm: Norm | None = None
    made: int = 0
    room: Tensor | None = None  # for what is made
    signed: bool = False  # at the end of a block: what is normalised is added as it is

    @classmethod
    def normalised(cls, norm: Norm) -> Self:
        """A rectified normalisation."""
        return cls(norm.features, norm=norm, made=1, room=empty_features(norm.features.shape, norm.features))

    @classmethod
    def of_block(cls, norm: Norm, added: Tensor, signed: bool = False) -> Self:
        """The end of a residual block: a rectified normalisation with something added, rectified again."""
        room = empty_features(norm.features.shape, norm.features)
        return cls(norm.features, added, norm, made=2, room=room, signed=signed)

    @classmethod
    def of_first_block(cls, norm: Norm, added: Norm, signed: bool = False) -> Self:
        """The end of a residual block whose shortcut was projected and normalised."""
        room = empty_features(norm.features.shape, norm.features)
        return cls(norm.features, added.features, norm, added, made=3, room=room, signed=signed)

    @classmethod
    def norm_gradient(cls, gradient: Tensor, norm: Norm, rectified: bool) -> Self:
        """The gradient by a normalisation's input; ``rectified``: it has yet to pass a rectifier."""
        return cls(gradient, norm.features, norm, made=5 if rectified else 4)


@dataclass(frozen=True, eq=False)
class Then:
    """What is done with a gradient by a convolution's input before it is stored; see ``products.input_gradient``."""

    added: Tensor | None = None
    masked_by: Tensor | None = None
    norm: Norm | None = None
    rectified_by_norm: bool = False
    signed: bool = False


@triton.jit
def norm_parameters(mean, inverse_deviation, scale, shift, channel, is_channel):
    """Return mean and inverse deviation, and factor and constant of the affine map that normalises centred values."""
    average = tl.load(mean + channel, mask=is_channel, other=0.0)
    inverse = tl.load(inverse_deviation + channel, mask=is_channel, other=0.0)
    factor = inverse * tl.load(scale + channel, mask=is_channel, other=0.0)
    constant = tl.load(shift + channel, mask=is_channel, other=0.0)
    return average, inverse, factor, constant


def empty_features(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return uninitialised channels-last features (batch, channels, height, width)."""
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def precision_of(features: Tensor) -> str:
    """Return how products of float32 are made: in TF32 where PyTorch's own convolutions would."""
    return "tf32" if features.dtype == torch.float32 and torch.backends.cudnn.allow_tf32 else "ieee"
