"""What methods, engines and evaluation ask of a network family."""

from typing import Any, Protocol

import numpy as np
from torch import Tensor

from fedfeast.networks.layers import Layers, Weights
from fedfeast.networks.layout import Layout


class Network(Protocol):
    """A family of networks in one flat vector; an architecture is any hashable value the family knows."""

    @property
    def layout(self) -> Layout:
        """The layout of the whole family's flat vector."""
        ...

    def shapes(self, architecture: Any) -> dict[str, tuple[int, ...]]:
        """Return the leading slices an architecture activates."""
        ...

    def macs(self, architecture: Any) -> int:
        """Return the multiply-accumulates of one inference."""
        ...

    def convolution_macs(self, architecture: Any) -> int:
        """Return the multiply-accumulates of one inference, convolutions alone."""
        ...

    def parameters(self, architecture: Any) -> int:
        """Return the number of parameters."""
        ...

    def initial_weights(self, generator: np.random.Generator) -> Tensor:
        """Draw the flat float32 vector a federation starts from."""
        ...

    def forward(self, weights: Weights, images: Tensor, architecture: Any, layers: Layers) -> tuple[Tensor, ...]:
        """Return the outputs for normalised images; the last one is what is served."""
        ...
