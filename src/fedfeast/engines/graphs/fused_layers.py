"""Layers whose forward and backward passes are a handful of fused kernels each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedfeast.engines.graphs.gradient_plan import GradientPlan
from fedfeast.engines.graphs.halo import convolution
from fedfeast.engines.graphs.halo.tiles import WeightTiles
from fedfeast.engines.graphs.halo.weight_gradient import MOST_LAYERS, Layer, weight_gradients
from fedfeast.engines.graphs.kernels.features import Features, Norm, Then
from fedfeast.engines.graphs.kernels.normalisations import (
    norm_gradient,
    normalise,
    pool,
    pool_gradient,
    rectify_gradient,
    sum_gradients,
)
from fedfeast.engines.graphs.kernels.products import convolve, input_gradient, spread_gradient
from fedfeast.engines.graphs.kernels.weight_gradients import weight_gradient
from fedfeast.engines.graphs.streams import Branch, Result
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
    signed: ClassVar[bool] = False

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
    signed: bool  # the last normalisation was added as it is

    @property
    def last_norm(self) -> Norm:
        """The normalisation whose values, rectified or signed, are a summand of the output."""
        return self.norm2


class FusedLayers(Layers):
    """Stem and blocks in fused kernels, without autograd: it begins at ``output``, and ``backward`` does the rest.

    The gradients by weights go straight to their places, on a branch of their own: a step is as long as the chain of
    kernels that wait for one another, and nothing in the trunk waits for these. Where the number of images is given, in
    the device's memory, only so many of a batch count: kernels look it up when they run, so that captured passes serve
    every number.
    """

    training = True

    def __init__(
        self,
        plan: GradientPlan,
        gradients: Tensor,
        counters: Tensor,  # a row for each branch
        num_images: Tensor | None = None,
    ) -> None:
        self._plan, self._gradients, self._num_images = plan, gradients, num_images
        self._counters, self._counters_beside = counters
        self._branch = Branch(gradients.device)
        self._passed: list[_Stem | _Block] = []  # in the order of the forward pass
        self._unmade: Features | None = None  # the last output, where its room is not filled yet
        self._output: Tensor | None = None
        self._waiting: list[Layer] = []  # whose weights' gradients are of one size, and not stored yet
        self._waiting_tiles: WeightTiles | None = None

    def __call__(
        self, name: str, features: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float = EPSILON
    ) -> Tensor:
        """Refuse: a lone normalisation is not fused with anything."""
        raise NotImplementedError(f"{name}: fused layers have no separate normalisation")

    @property
    def output(self) -> Tensor:
        """The output of the last block: a leaf, so that autograd finds the gradient by it."""
        assert self._output is not None, "the trunk has not ended"
        return self._output

    def stem(self, weights: Weights, images: Tensor, stride: int) -> Tensor:
        """Return room for the rectified first convolution of normalised images, to be filled by what reads it."""
        norm, _ = self._convolve(weights, "stem.conv", "stem.norm", Features(images), stride)
        self._passed, self._output = [_Stem(images, norm, stride)], None
        return self._leave(Features.normalised(norm))

    def block(self, weights: Weights, name: str, features: Tensor, stride: int, signed: bool = False) -> Tensor:
        """Return room for the output of a residual block, to be filled by what reads it."""
        norm1, features = self._convolve(weights, f"{name}.conv1", f"{name}.norm1", self._take(features), stride)
        shortcut = None
        if f"{name}.shortcut" in weights:
            shortcut = self._beside(lambda: self._shortcut(weights, name, features, stride), features)
        norm2, hidden = self._convolve(weights, f"{name}.conv2", f"{name}.norm2", Features.normalised(norm1), 1)
        self._branch.join()
        if shortcut is not None:
            out = Features.of_first_block(norm2, shortcut[1], signed)
        else:
            out = Features.of_block(norm2, features, signed)
        self._passed.append(_Block(name, stride, weights, features, norm1, hidden, norm2, shortcut, signed))
        return self._leave(out)

    def end(self, features: Tensor) -> Tensor:
        """Return the last block's output."""
        if self._num_images is not None:
            features.zero_()  # what lies behind the last image must not be infinite: autograd multiplies it by zero
        self._output = self._filled(self._take(features)).requires_grad_()
        return self._output

    def backward(self, gradient: Tensor) -> None:
        """Store the gradients by all weights, given the one by ``output``; let go of each layer once it is done.

        A layer is handed the gradient by its output masked by the rectifier there, and finds the gradients of its
        last normalisation stored: whoever computes a gradient does both.
        """
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        gradient = self._rectified_gradient(gradient, self._passed[-1])
        self._output = None
        while len(self._passed) > 1:
            # Popped where it is used: a name for it here would hold on to its memory while the next one runs.
            gradient = self._block_gradient(self._passed.pop(), gradient)
        self._stem_gradient(self._passed.pop(), gradient)
        self._store_waiting()
        self._branch.join()

    def _rectified_gradient(self, gradient: Tensor, last: _Stem | _Block) -> Tensor:
        """Return the gradient by the last layer's output as that layer wants it."""
        return rectify_gradient(
            gradient, self.output, last.last_norm, self._counters, self._num_images, signed=last.signed
        )

    def _leave(self, features: Features) -> Tensor:
        """Return the room of what is left to be made by the next layer."""
        assert features.room is not None
        self._unmade = features
        return features.room

    def _take(self, features: Tensor) -> Features:
        """Return what a layer before has left."""
        unmade, self._unmade = self._unmade, None
        assert unmade is not None, "no layer came before"
        assert unmade.room is features, "layers do not follow one another"
        return unmade

    def _beside(self, work: Callable[[], Result], *reads: object) -> Result:
        """Do the work beside what comes, with the counters of that branch."""
        counters = self._counters
        self._counters = self._counters_beside
        try:
            return self._branch.run(work, *reads)
        finally:
            self._counters = counters

    def _shortcut(self, weights: Weights, name: str, features: Tensor, stride: int) -> tuple[Tensor, Norm]:
        """Return a block's input as its projected shortcut takes it, and the normalisation at the shortcut's end."""
        pooled = pool(features, stride, self._num_images) if stride > 1 else features
        projected, _ = self._convolve(weights, f"{name}.shortcut", f"{name}.shortcut_norm", Features(pooled), 1)
        return pooled, projected

    def _stem_gradient(self, saved: _Stem | _Block, gradient: Tensor) -> None:
        assert isinstance(saved, _Stem)
        by_conv = norm_gradient(gradient, saved.norm, rectified=False, num_images=self._num_images)
        self._store_weight_gradient("stem.conv", saved.images, by_conv, saved.stride)

    def _block_gradient(self, saved: _Stem | _Block, gradient: Tensor) -> Tensor:
        """Return the gradient by a block's input, ready for the layer before."""
        assert isinstance(saved, _Block)
        conv1, conv2, before = f"{saved.name}.conv1", f"{saved.name}.conv2", self._passed[-1]
        through_shortcut = gradient
        if saved.shortcut is not None:
            through_shortcut = self._beside(lambda: self._shortcut_gradient(saved, gradient), saved, gradient)
        by_hidden = self._convolution_gradient(
            saved, conv2, saved.hidden, Features.norm_gradient(gradient, saved.norm2, rectified=not saved.signed),
            Then(norm=saved.norm1, rectified_by_norm=True),
        )  # fmt: skip
        if saved.shortcut is not None:
            self._branch.join()
        follows_stem = isinstance(before, _Stem)
        then = Then(
            added=through_shortcut,
            masked_by=None if follows_stem else saved.features,
            norm=before.last_norm,
            rectified_by_norm=follows_stem,
            signed=before.signed,
        )
        by_conv1 = Features.norm_gradient(by_hidden, saved.norm1, rectified=False)
        return self._convolution_gradient(saved, conv1, saved.features, by_conv1, then, saved.stride)

    def _shortcut_gradient(self, saved: _Block, gradient: Tensor) -> Tensor:
        """Return the gradient by a block's input through its projected shortcut."""
        assert saved.shortcut is not None
        pooled, norm = saved.shortcut
        sum_gradients(gradient, norm, self._counters, self._num_images)
        by_conv = Features.norm_gradient(gradient, norm, rectified=False)
        by_pooled = self._convolution_gradient(saved, f"{saved.name}.shortcut", pooled, by_conv, Then())
        if saved.stride == 1:
            return by_pooled
        return pool_gradient(by_pooled, saved.features, saved.stride, self._num_images)

    # All products of a pass go through the functions below. The plan of a weight's gradient says whose kernels serve
    # it: those in CUDA C++ make features on the way in, those in Triton find them made.

    def _convolve(self, weights: Weights, conv: str, norm: str, features: Features, stride: int) -> tuple[Norm, Tensor]:
        """Convolve; return the normalisation that follows, ready to be applied, and the features."""
        if stride == 1 and isinstance(self._plan.places[conv].cut, WeightTiles):
            if not convolution.makes(features, weights[conv], backward=False):
                features = Features(self._filled(features))
            out, statistics, made = convolution.convolve(
                features, weights[conv], self._counters, EPSILON, self._num_images
            )
        else:
            made = self._filled(features)
            out, statistics = convolve(
                made, weights[conv], stride, self._counters, EPSILON, num_images=self._num_images
            )
        scale, shift = f"{norm}.scale", f"{norm}.shift"
        parameters = weights[scale], weights[shift], self._gradient(scale), self._gradient(shift)
        return Norm(out, statistics, *parameters), made

    def _convolution_gradient(
        self, saved: _Block, conv: str, features: Tensor, gradient: Features, then: Then, stride: int = 1
    ) -> Tensor:
        """Return the gradient by a convolution's input, and see to the one by its weight."""
        weight, kernel = saved.weights[conv], saved.weights[conv].shape[2]
        if isinstance(self._plan.places[conv].cut, WeightTiles):
            if stride > 1:
                size = features.shape[2], features.shape[3]
                gradient = Features(spread_gradient(self._filled(gradient), *size, stride))
            elif not convolution.makes(gradient, weight, backward=True):
                gradient = Features(self._filled(gradient))
            by_features, made = convolution.input_gradient(gradient, weight, self._counters, then, self._num_images)
        else:
            made = self._filled(gradient)
            by_features = input_gradient(
                made, weight, features, stride, self._counters, added=then.added, masked_by=then.masked_by,
                norm=then.norm, rectified_by_norm=then.rectified_by_norm, signed=then.signed,
                num_images=self._num_images,
            )  # fmt: skip
        self._store_weight_gradient(conv, features, made, stride, kernel)
        return by_features

    def _store_weight_gradient(
        self, name: str, features: Tensor, gradient: Tensor, stride: int, kernel: int = 3
    ) -> None:
        """Store the partial sums of the gradient by a convolution's weight, or put it off until others join it."""
        place = self._plan.places[name]
        assert place.cut is not None, name
        out = place.of(self._gradients)
        if not isinstance(place.cut, WeightTiles):
            cut = place.cut
            self._beside(
                lambda: weight_gradient(features, gradient, stride, kernel, out, cut, self._num_images),
                features, gradient,
            )  # fmt: skip
            return
        layer = Layer(features, gradient, out)
        joins = self._waiting_tiles == place.cut and self._waiting[0].size == layer.size
        if self._waiting and (not joins or len(self._waiting) == MOST_LAYERS):
            self._store_waiting()
        self._waiting.append(layer)
        self._waiting_tiles = place.cut

    def _store_waiting(self) -> None:
        """Store the gradients that were put off."""
        layers, tiles = self._waiting, self._waiting_tiles
        if tiles is not None:
            self._beside(lambda: weight_gradients(layers, tiles, self._num_images), layers)
        self._waiting, self._waiting_tiles = [], None

    def _gradient(self, name: str) -> Tensor:
        """Return the place of a tensor's partial gradients (parts, ...), flat."""
        return self._plan.places[name].of(self._gradients)

    def _filled(self, features: Features) -> Tensor:
        """Return features as a tensor, made by a kernel of their own where they are not there yet."""
        if features.made == 0:
            return features.first
        assert features.norm is not None
        if features.made in (4, 5):
            return norm_gradient(features.first, features.norm, features.made == 5, self._num_images)
        added = features.second if features.made == 2 else None
        return normalise(features.norm, added, features.added_norm, features.room, self._num_images, features.signed)
