"""Layers whose forward and backward passes are a handful of fused kernels each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedfeast.engines.graphs.gradient_plan import GradientPlan
from fedfeast.engines.graphs.kernels.features import Norm
from fedfeast.engines.graphs.kernels.normalisations import (
    norm_gradient,
    normalise,
    pool,
    pool_gradient,
    sum_gradients,
)
from fedfeast.engines.graphs.kernels.products import convolve, input_gradient
from fedfeast.engines.graphs.kernels.weight_gradients import weight_gradient
from fedfeast.networks import Weights
from fedfeast.networks.layers import EPSILON, Layers


def is_fused(name: str) -> bool:
    """Return whether the named tensor's gradient is stored by fused layers; others are left to autograd."""
    return not name.startswith("head.")


class FusedLayers(Layers):
    """Stem and blocks in fused kernels; gradients by their weights go straight to their places, not to autograd."""

    training = True

    def __init__(self, plan: GradientPlan, gradients: Tensor, counters: Tensor) -> None:
        self._plan, self._gradients, self.counters = plan, gradients, counters
        # Autograd walks back only through what depends on a leaf, and the weights are none here.
        self.anchor = torch.zeros((), dtype=torch.float32, device=gradients.device, requires_grad=True)

    def __call__(
        self, name: str, features: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float = EPSILON
    ) -> Tensor:
        """Refuse: a lone normalisation is not fused with anything."""
        raise NotImplementedError(f"{name}: fused layers have no separate normalisation")

    def stem(self, weights: Weights, images: Tensor, stride: int) -> Tensor:
        """Return the rectified first convolution of normalised images."""
        result: Tensor = _Stem.apply(self.anchor, images, self, weights, stride)  # type: ignore[no-untyped-call]
        return result

    def block(self, weights: Weights, name: str, features: Tensor, stride: int) -> Tensor:
        """Return the output of a residual block."""
        result: Tensor = _Block.apply(features, self, weights, name, stride)  # type: ignore[no-untyped-call]
        return result

    def convolve_for(self, weights: Weights, conv: str, norm: str, features: Tensor, stride: int) -> Norm:
        """Convolve; return the normalisation that follows, ready to be applied."""
        out, statistics = convolve(features, weights[conv], stride, self.counters, EPSILON)
        scale, shift = f"{norm}.scale", f"{norm}.shift"
        return Norm(out, statistics, weights[scale], weights[shift], self.gradient(scale), self.gradient(shift))

    def gradient(self, name: str) -> Tensor:
        """Return the place of a tensor's partial gradients (parts, ...), flat."""
        return self._plan.places[name].of(self._gradients)

    def store_weight_gradient(self, name: str, features: Tensor, gradient: Tensor, stride: int, kernel: int) -> None:
        """Store the partial sums of the gradient by a convolution's weight."""
        place = self._plan.places[name]
        assert place.cut is not None, name
        weight_gradient(features, gradient, stride, kernel, place.of(self._gradients), place.cut)


class _Stem(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, leaf: Tensor, images: Tensor, layers: FusedLayers, weights: Weights, stride: int) -> Tensor:
        norm = layers.convolve_for(weights, "stem.conv", "stem.norm", images, stride)
        ctx.saved = (images, norm, layers, stride)
        return normalise(norm)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        images, norm, layers, stride = ctx.saved
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        sum_gradients(gradient, norm, out=None)
        layers.store_weight_gradient("stem.conv", images, norm_gradient(gradient, norm, out=None), stride, kernel=3)
        return None, None, None, None, None


@dataclass(frozen=True, eq=False)
class _Saved:
    """What a block's forward pass leaves to its backward pass."""

    features: Tensor
    hidden: Tensor
    out: Tensor
    norm1: Norm
    norm2: Norm
    shortcut: tuple[Tensor, Norm] | None  # pooled input and normalisation of a projected shortcut
    weights: Mapping[str, Tensor]
    layers: FusedLayers
    name: str
    stride: int


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, layers: FusedLayers, weights: Weights, name: str, stride: int) -> Tensor:
        norm1 = layers.convolve_for(weights, f"{name}.conv1", f"{name}.norm1", features, stride)
        hidden = normalise(norm1)
        norm2 = layers.convolve_for(weights, f"{name}.conv2", f"{name}.norm2", hidden, 1)
        shortcut = None
        if f"{name}.shortcut" in weights:
            pooled = pool(features, stride) if stride > 1 else features
            projected = layers.convolve_for(weights, f"{name}.shortcut", f"{name}.shortcut_norm", pooled, 1)
            shortcut = (pooled, projected)
            out = normalise(norm2, added_norm=projected)
        else:
            out = normalise(norm2, added=features)
        # Detached: an output that its own node held on to would never be freed.
        ctx.saved = _Saved(features, hidden, out.detach(), norm1, norm2, shortcut, weights, layers, name, stride)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        saved: _Saved = ctx.saved
        layers, name, weights = saved.layers, saved.name, saved.weights
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        sum_gradients(gradient, saved.norm2, saved.out)
        by_conv2 = norm_gradient(gradient, saved.norm2, saved.out)
        layers.store_weight_gradient(f"{name}.conv2", saved.hidden, by_conv2, 1, kernel=3)
        conv1, conv2 = weights[f"{name}.conv1"], weights[f"{name}.conv2"]
        by_hidden = input_gradient(by_conv2, conv2, saved.hidden, 1, layers.counters, norm=saved.norm1)
        by_conv1 = norm_gradient(by_hidden, saved.norm1, out=None)
        layers.store_weight_gradient(f"{name}.conv1", saved.features, by_conv1, saved.stride, kernel=3)
        if saved.shortcut is None:
            added, added_where = gradient, saved.out
        else:
            added, added_where = _shortcut_gradient(saved, gradient), None
        by_features = input_gradient(
            by_conv1, conv1, saved.features, saved.stride, layers.counters, added=added, added_where=added_where
        )
        return by_features, None, None, None, None


def _shortcut_gradient(saved: _Saved, gradient: Tensor) -> Tensor:
    """Return the gradient by a block's input through its projected shortcut."""
    assert saved.shortcut is not None
    pooled, norm = saved.shortcut
    layers, name = saved.layers, f"{saved.name}.shortcut"
    sum_gradients(gradient, norm, saved.out, rectified=False)
    by_conv = norm_gradient(gradient, norm, saved.out, rectified=False)
    layers.store_weight_gradient(name, pooled, by_conv, 1, kernel=1)
    by_pooled = input_gradient(by_conv, saved.weights[name], pooled, 1, layers.counters)
    return by_pooled if saved.stride == 1 else pool_gradient(by_pooled, saved.features, saved.stride)
