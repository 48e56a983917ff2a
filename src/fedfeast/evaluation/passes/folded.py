"""Layers that measure the elastic network on a GPU: norms folded into convolutions, few passes over the features."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedfeast.federation import Deployed
from fedfeast.networks import ElasticResNet
from fedfeast.networks.layers import EPSILON, Layers, Weights
from fedfeast.networks.normalisation import ByStatistics, Statistics

TENSOR_CORES = (8, 0)  # the compute capability from which convolutions of float32 are made in TF32
MOST_ELEMENTS = 2**31  # that an index of 32 bits can count


Rectify = Callable[..., Tensor]  # what follows a folded convolution, in place: as ``rectify_``


def rectify_(
    features: Tensor,
    shift: Tensor,
    added: Tensor | None = None,
    added_shift: Tensor | None = None,
    signed: bool = False,
) -> Tensor:
    """Shift by channel and rectify in place; what is added, itself shifted, comes on top before a second rectifier.

    ``signed``: that is the only one.
    """
    features.add_(_per_channel(shift))
    if not signed:
        F.relu_(features)
    if added is None:
        return features
    if added_shift is not None:
        features.add_(_per_channel(added_shift))
    return F.relu_(features.add_(added))


class FoldedLayers(ByStatistics):
    """Stem and blocks by given statistics: a norm's factors go into the convolution before it, its shift behind."""

    def __init__(self, statistics: Statistics, dtype: torch.dtype, rectify: Rectify = rectify_) -> None:
        super().__init__(statistics)
        self.dtype = dtype  # of features and convolutions
        self._rectify = rectify
        self._folded: dict[str, tuple[Tensor, Tensor]] = {}  # by convolution: its weight, and the shift behind it

    def stem(self, weights: Weights, images: Tensor, stride: int) -> Tensor:
        """Return the rectified first convolution of normalised images."""
        images = images.to(self.dtype, memory_format=torch.channels_last)
        return self._rectify(*self._convolve(weights, "stem.conv", "stem.norm", images, stride), None, None)

    def block(self, weights: Weights, name: str, features: Tensor, stride: int, signed: bool = False) -> Tensor:
        """Return the output of a residual block."""
        hidden, shift = self._convolve(weights, f"{name}.conv1", f"{name}.norm1", features, stride)
        hidden = self._rectify(hidden, shift, None, None)
        hidden, shift = self._convolve(weights, f"{name}.conv2", f"{name}.norm2", hidden, 1)
        if f"{name}.shortcut" not in weights:
            return self._rectify(hidden, shift, features, None, signed)
        if stride > 1:
            features = F.avg_pool2d(features, stride, ceil_mode=True)
        projected, added_shift = self._convolve(weights, f"{name}.shortcut", f"{name}.shortcut_norm", features, 1)
        return self._rectify(hidden, shift, projected, added_shift, signed)

    def _convolve(self, weights: Weights, conv: str, norm: str, features: Tensor, stride: int) -> tuple[Tensor, Tensor]:
        """Return the folded convolution, which keeps the size at stride 1, and the shift to come."""
        if conv not in self._folded:
            mean, variance = self.statistics[norm]
            self._folded[conv] = fold(
                weights[conv], weights[f"{norm}.scale"], weights[f"{norm}.shift"], mean, variance, self.dtype
            )
        weight, shift = self._folded[conv]
        return F.conv2d(features, weight, stride=stride, padding=weight.shape[-1] // 2), shift


def fold(
    weight: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return a convolution's weight times its norm's factors, rounded once, and the norm's shift in full."""
    factor = (variance + EPSILON).rsqrt_().mul_(scale)
    folded = (weight * factor.view(-1, 1, 1, 1)).to(dtype, memory_format=torch.channels_last)
    return folded, torch.addcmul(shift, mean, factor, value=-1)


def layers_by(deployed: Deployed, statistics: Statistics) -> ByStatistics:
    """Return the layers to measure a network with under given statistics: folded where that is faster."""
    flat = deployed.flat
    if flat.dtype != torch.float32 or not flat.is_cuda or not isinstance(deployed.network, ElasticResNet):
        return ByStatistics(statistics)
    has_tensor_cores = torch.cuda.get_device_capability(flat.device) >= TENSOR_CORES
    # Choice: TF32, to which PyTorch rounds what float32 convolutions multiply, has the ten bits of float16. Features
    # of float16 take half the bytes; folded weights give values near one, and what leaves the range is noticed (008).
    is_half = has_tensor_cores and torch.backends.cudnn.allow_tf32
    rectify = _fused if has_tensor_cores and find_spec("triton") is not None else rectify_
    return FoldedLayers(statistics, torch.float16 if is_half else torch.float32, rectify)


def is_exact(layers: Layers) -> bool:
    """Return whether layers have the range of float32: with others a result may not be finite though it should be."""
    return not isinstance(layers, FoldedLayers) or layers.dtype != torch.float16


def _fused(features: Tensor, *arguments: Any) -> Tensor:
    from fedfeast.evaluation.passes.rectifying import rectify_in_one_pass_

    do = rectify_in_one_pass_ if features.numel() < MOST_ELEMENTS else rectify_
    return do(features, *arguments)


def _per_channel(vector: Tensor) -> Tensor:
    return vector.view(-1, 1, 1)
