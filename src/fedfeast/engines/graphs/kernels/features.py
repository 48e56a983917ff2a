"""Channels-last features, and the batch normalisations they go through, as kernels hand them on."""

from collections.abc import Sequence
from dataclasses import dataclass

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
