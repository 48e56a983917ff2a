"""The layers of a forward pass, as an argument of it: how they normalise, and how an engine computes them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-5  # added to a variance, unless a layer has its own

Weights = Mapping[str, Tensor]


class Layers(ABC):
    """Plain PyTorch layers; subclasses say how to normalise, and may compute whole layers another way."""

    training: ClassVar[bool] = False  # whether the pass trains, as a module's own ``training`` says

    @abstractmethod
    def __call__(
        self, name: str, features: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float = EPSILON
    ) -> Tensor:
        """Return the named layer's input (batch, channels, ...) normalised, scaled and shifted."""

    def dropout(self, name: str, features: Tensor, share: float) -> Tensor:
        """Return the named layer's input, in training with a share of it at zero."""
        return features

    def stem(self, weights: Weights, images: Tensor, stride: int) -> Tensor:
        """Return the rectified first convolution of normalised images."""
        features = F.conv2d(images, weights["stem.conv"], stride=stride, padding=1)
        return F.relu_(self._normalised(weights, "stem.norm", features))

    def block(self, weights: Weights, name: str, features: Tensor, stride: int, signed: bool = False) -> Tensor:
        """Two 3x3 convolutions and a shortcut, projected where there are weights; rectified before the addition too.

        A signed branch is added as it is.
        """
        hidden = F.conv2d(features, weights[f"{name}.conv1"], stride=stride, padding=1)
        hidden = F.relu_(self._normalised(weights, f"{name}.norm1", hidden))
        hidden = F.conv2d(hidden, weights[f"{name}.conv2"], padding=1)
        hidden = self._normalised(weights, f"{name}.norm2", hidden)
        if not signed:
            hidden = F.relu_(hidden)
        if f"{name}.shortcut" in weights:
            if stride > 1:
                features = F.avg_pool2d(features, stride, ceil_mode=True)
            features = F.conv2d(features, weights[f"{name}.shortcut"])
            features = self._normalised(weights, f"{name}.shortcut_norm", features)
        return F.relu(hidden + features)

    def end(self, features: Tensor) -> Tensor:
        """Return the last block's output, where no other block will follow."""
        return features

    def _normalised(self, weights: Weights, name: str, features: Tensor) -> Tensor:
        return self(name, features, weights[f"{name}.scale"], weights[f"{name}.shift"])
