"""Batch normalisation as an argument of the forward pass: by batch, by batch and recorded, or by given statistics."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from fedfeast.networks.dropout import kept_features
from fedfeast.networks.layers import EPSILON, Layers

BLOCK_ELEMENTS = 1 << 17  # half a megabyte in float32: what a core's cache holds

Statistics = Mapping[str, tuple[Tensor, Tensor]]  # norm layer -> (mean, biased variance) per channel


def _aligned(vector: Tensor | None) -> Tensor | None:
    """Return the vector where cuDNN, which reads 16 bytes at a time, can take it: a client's tensors have no pads."""
    return vector.clone() if vector is not None and vector.is_cuda and vector.data_ptr() % 16 else vector


class ByBatch(Layers):
    """Normalise by the batch's own statistics, as in training; with a draw, dropout layers drop by it."""

    training = True

    def __init__(self, draw: Tensor | None = None) -> None:
        self.draw = draw  # int64 without axes: the pass's seed

    def __call__(
        self, name: str, features: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float = EPSILON
    ) -> Tensor:
        """Normalise the layer's input by its own mean and variance."""
        if features.numel() == features.shape[1]:
            # One value a channel, which torch refuses: as two copies, so that it becomes the shift.
            return self(name, features.expand(2, *features.shape[1:]), scale, shift, epsilon)[:1]
        return F.batch_norm(features, None, None, _aligned(scale), _aligned(shift), training=True, eps=epsilon)

    def dropout(self, name: str, features: Tensor, share: float) -> Tensor:
        """Put a share of the named layer's input to zero, as the draw decides; without a draw nothing."""
        return features if self.draw is None else kept_features(self.draw, name, features, share)


by_batch = ByBatch()


class ByStatistics(Layers):
    """Normalise by given statistics, as in serving."""

    def __init__(self, statistics: Statistics) -> None:
        self.statistics = statistics

    def __call__(
        self, name: str, features: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float = EPSILON
    ) -> Tensor:
        """Normalise the named layer's input by its statistics."""
        mean, variance = self.statistics[name]
        scale, shift = _aligned(scale), _aligned(shift)
        return F.batch_norm(features, mean, variance, scale, shift, training=False, eps=epsilon)


class RecordingByBatch(Layers):
    """Normalise by the batch's own statistics and add them up, weighted by the batch's examples."""

    def __init__(self) -> None:
        self.batches = 1  # of equal size, one behind the other, that the next pass is made of
        self._sums: dict[str, Tensor] = {}  # (2, channels) in float64: of means and of variances
        self._examples: dict[str, int] = {}

    def __call__(
        self, name: str, features: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float = EPSILON
    ) -> Tensor:
        """Normalise as in training; remember mean and biased variance."""
        if self.batches > 1:
            normalised, both = normalise_batches(features, self.batches, scale, shift, epsilon)
        elif features.is_cuda:
            # A device is idle while small kernels are launched: one pass both normalises and tells what it did it by.
            normalised, both = normalise_by_moments(features, scale, shift, epsilon)
        else:
            normalised, both = by_batch(name, features, scale, shift, epsilon), torch.stack(moments(features))
        examples = features.shape[0]
        weighted = examples * both.double()
        self._sums[name] = self._sums[name] + weighted if name in self._sums else weighted
        self._examples[name] = self._examples.get(name, 0) + examples
        return normalised

    @property
    def is_empty(self) -> bool:
        """Whether no layer has asked for anything yet."""
        return not self._sums

    def statistics(self, dtype: torch.dtype) -> Statistics:
        """Return the example-weighted means of the batches' means and variances."""
        return {
            name: ((mean / self._examples[name]).to(dtype), (variance / self._examples[name]).to(dtype))
            for name, (mean, variance) in self._sums.items()
        }


def normalise_by_moments(
    features: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Return the features normalised by their own statistics, and these: (2, channels), means and biased variances."""
    channels = features.shape[1]
    # Rows of whole 16 bytes, for cuDNN. With momentum 1 a running statistic is the batch's own.
    both = features.new_zeros(2, -(-channels // 4) * 4)[:, :channels]
    scale, shift = _aligned(scale), _aligned(shift)
    normalised = F.batch_norm(features, both[0], both[1], scale, shift, training=True, momentum=1.0, eps=epsilon)
    values = features.numel() // channels
    both[1].mul_((values - 1) / values)  # a running variance is the unbiased one
    return normalised, both


def normalise_batches(
    features: Tensor, batches: int, scale: Tensor | None, shift: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Return several batches in one tensor normalised, each by its own statistics, and the means of these."""
    apart = torch.unflatten(features, 0, (batches, -1))  # (batches, examples, channels, ...)
    axes = (1, *range(3, apart.ndim))
    variances, means = torch.var_mean(apart, dim=axes, correction=0, keepdim=True)
    factors = (variances + epsilon).rsqrt_()
    per_channel = (-1, *(1 for _ in apart.shape[3:]))
    if scale is not None:
        factors.mul_(scale.view(per_channel))
    shifts = -means * factors
    if shift is not None:
        shifts.add_(shift.view(per_channel))
    both = torch.stack((means, variances)).flatten(2).double().mean(dim=1)
    return torch.addcmul(shifts, apart, factors).flatten(0, 1), both


def moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance per channel of (batch, channels, ...) in float64."""
    axes = (0, *range(2, features.ndim))
    if features.is_cuda or len(axes) != 3 or not features.is_contiguous(memory_format=torch.channels_last):
        variance, mean = torch.var_mean(features.double(), dim=axes, correction=0)
        return mean, variance
    rows = features.permute(0, 2, 3, 1).flatten(0, 2)  # (pixels, channels), as they lie in memory
    blocks = torch.split(rows, max(1, BLOCK_ELEMENTS // rows.shape[1]))
    # Near the mean little is lost in float32; blocks are short, and their sums meet in float64.
    centre = blocks[0].mean(dim=0)
    first, second = (torch.zeros(rows.shape[1], dtype=torch.float64) for _ in range(2))
    for block in blocks:
        difference = block - centre
        first += difference.sum(dim=0)
        second += difference.square_().sum(dim=0)
    offset = first / len(rows)
    return centre + offset, (second / len(rows) - offset.square()).clamp_(min=0)
