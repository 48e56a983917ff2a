"""Layers whose forward and backward passes are a handful of fused kernels each."""

from dataclasses import dataclass
from typing import TypedDict, Unpack

import torch
from torch import Tensor

from fedfeast.engines.graphs.gradient_plan import GradientPlan
from fedfeast.engines.graphs.kernels.features import Norm
from fedfeast.engines.graphs.kernels.normalisations import (
    norm_gradient,
    normalise,
    pool,
    pool_gradient,
    rectify_gradient,
    sum_gradients,
)
from fedfeast.engines.graphs.kernels.products import convolve, input_gradient
from fedfeast.engines.graphs.kernels.weight_gradients import weight_gradient
from fedfeast.networks import Weights
from fedfeast.networks.layers import EPSILON, Layers


def is_fused(name: str) -> bool:
    """Return whether the named tensor's gradient is stored by fused layers; others are left to autograd."""
    return not name.startswith("head.")


@dataclass(frozen=True, eq=False)
class _Stem:
    """What the stem's forward pass leaves to its backward pass."""

    images: Tensor
    norm: Norm
    stride: int

    @property
    def last_norm(self) -> Norm:
        """The normalisation whose rectified values are the output."""
        return self.norm


@dataclass(frozen=True, eq=False)
class _Block:
    """What a block's forward pass leaves to its backward pass."""

    name: str
    stride: int
    weights: Weights
    features: Tensor
    norm1: Norm
    hidden: Tensor
    norm2: Norm
    shortcut: tuple[Tensor, Norm] | None  # pooled input and normalisation of a projected shortcut

    @property
    def last_norm(self) -> Norm:
        """The normalisation whose rectified values are a summand of the output."""
        return self.norm2


class _Then(TypedDict, total=False):
    """What is done with a gradient by a convolution's input before it is stored; see ``input_gradient``."""

    added: Tensor | None
    masked_by: Tensor | None
    norm: Norm | None
    rectified_by_norm: bool


class FusedLayers(Layers):
    """Stem and blocks in fused kernels, without autograd: it begins at ``output``, and ``backward`` does the rest.

    The gradients by weights go straight to their places.
    """

    training = True

    def __init__(self, plan: GradientPlan, gradients: Tensor, counters: Tensor) -> None:
        self._plan, self._gradients, self._counters = plan, gradients, counters
        self._passed: list[_Stem | _Block] = []  # in the order of the forward pass
        self._output: Tensor | None = None

    def __call__(
        self, name: str, features: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float = EPSILON
    ) -> Tensor:
        """Refuse: a lone normalisation is not fused with anything."""
        raise NotImplementedError(f"{name}: fused layers have no separate normalisation")

    @property
    def output(self) -> Tensor:
        """The output of the last block so far: a leaf, so that autograd finds the gradient by it."""
        assert self._output is not None, "no layer has passed"
        return self._output

    def stem(self, weights: Weights, images: Tensor, stride: int) -> Tensor:
        """Return the rectified first convolution of normalised images."""
        norm = self._convolve(weights, "stem.conv", "stem.norm", images, stride)
        self._passed = [_Stem(images, norm, stride)]
        self._output = normalise(norm).requires_grad_()
        return self._output

    def block(self, weights: Weights, name: str, features: Tensor, stride: int) -> Tensor:
        """Return the output of a residual block."""
        norm1 = self._convolve(weights, f"{name}.conv1", f"{name}.norm1", features, stride)
        hidden = normalise(norm1)
        norm2 = self._convolve(weights, f"{name}.conv2", f"{name}.norm2", hidden, 1)
        shortcut = None
        if f"{name}.shortcut" in weights:
            pooled = pool(features, stride) if stride > 1 else features
            projected = self._convolve(weights, f"{name}.shortcut", f"{name}.shortcut_norm", pooled, 1)
            shortcut = (pooled, projected)
            out = normalise(norm2, added_norm=projected)
        else:
            out = normalise(norm2, added=features)
        self._passed.append(_Block(name, stride, weights, features, norm1, hidden, norm2, shortcut))
        self._output = out.requires_grad_()
        return out

    def backward(self, gradient: Tensor) -> None:
        """Store the gradients by all weights, given the one by ``output``; let go of each layer once it is done.

        A layer is handed the gradient by its output masked by the rectifier there, and finds the gradients of its
        last normalisation stored: whoever computes a gradient does both.
        """
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        gradient = rectify_gradient(gradient, self.output, self._passed[-1].last_norm, self._counters)
        self._output = None
        while len(self._passed) > 1:
            # Popped where it is used: a name for it here would hold on to its memory while the next one runs.
            gradient = self._block_gradient(self._passed.pop(), gradient)
        self._stem_gradient(self._passed.pop(), gradient)

    def _stem_gradient(self, saved: _Stem | _Block, gradient: Tensor) -> None:
        assert isinstance(saved, _Stem)
        by_conv = norm_gradient(gradient, saved.norm, rectified=False)
        self._store_weight_gradient("stem.conv", saved.images, by_conv, saved.stride)

    def _block_gradient(self, saved: _Stem | _Block, gradient: Tensor) -> Tensor:
        """Return the gradient by a block's input, ready for the layer before."""
        assert isinstance(saved, _Block)
        conv1, conv2, before = f"{saved.name}.conv1", f"{saved.name}.conv2", self._passed[-1]
        by_conv2 = norm_gradient(gradient, saved.norm2, rectified=True)
        self._store_weight_gradient(conv2, saved.hidden, by_conv2, 1)
        by_hidden = self._input_gradient(
            by_conv2, saved.weights[conv2], saved.hidden, 1, norm=saved.norm1, rectified_by_norm=True
        )
        by_conv1 = norm_gradient(by_hidden, saved.norm1, rectified=False)
        self._store_weight_gradient(conv1, saved.features, by_conv1, saved.stride)
        follows_stem = isinstance(before, _Stem)
        return self._input_gradient(
            by_conv1,
            saved.weights[conv1],
            saved.features,
            saved.stride,
            added=gradient if saved.shortcut is None else self._shortcut_gradient(saved, gradient),
            masked_by=None if follows_stem else saved.features,
            norm=before.last_norm,
            rectified_by_norm=follows_stem,
        )

    def _shortcut_gradient(self, saved: _Block, gradient: Tensor) -> Tensor:
        """Return the gradient by a block's input through its projected shortcut."""
        assert saved.shortcut is not None
        pooled, norm = saved.shortcut
        name = f"{saved.name}.shortcut"
        sum_gradients(gradient, norm, self._counters)
        by_conv = norm_gradient(gradient, norm, rectified=False)
        self._store_weight_gradient(name, pooled, by_conv, 1, kernel=1)
        by_pooled = self._input_gradient(by_conv, saved.weights[name], pooled, 1)
        return by_pooled if saved.stride == 1 else pool_gradient(by_pooled, saved.features, saved.stride)

    # All products of a pass go through the three functions below: here is where kernels are chosen.

    def _convolve(self, weights: Weights, conv: str, norm: str, features: Tensor, stride: int) -> Norm:
        """Convolve; return the normalisation that follows, ready to be applied."""
        out, statistics = convolve(features, weights[conv], stride, self._counters, EPSILON)
        scale, shift = f"{norm}.scale", f"{norm}.shift"
        return Norm(out, statistics, weights[scale], weights[shift], self._gradient(scale), self._gradient(shift))

    def _input_gradient(
        self, gradient: Tensor, weight: Tensor, like: Tensor, stride: int, **then: Unpack[_Then]
    ) -> Tensor:
        """Return the gradient by a convolution's input, and do what follows."""
        return input_gradient(gradient, weight, like, stride, self._counters, **then)

    def _store_weight_gradient(
        self, name: str, features: Tensor, gradient: Tensor, stride: int, kernel: int = 3
    ) -> None:
        """Store the partial sums of the gradient by a convolution's weight."""
        place = self._plan.places[name]
        assert place.cut is not None, name
        weight_gradient(features, gradient, stride, kernel, place.of(self._gradients), place.cut)

    def _gradient(self, name: str) -> Tensor:
        """Return the place of a tensor's partial gradients (parts, ...), flat."""
        return self._plan.places[name].of(self._gradients)
