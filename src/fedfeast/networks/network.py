"""What methods, engines and evaluation ask of a network family."""

from collections.abc import Mapping, Sequence
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

    @property
    def draws(self) -> bool:
        """Whether training passes draw: whether some layer drops a share of its input."""
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

    def forward(self, weights: Weights, inputs: Tensor, architecture: Any, layers: Layers) -> tuple[Tensor, ...]:
        """Return the outputs for normalised inputs or token ids; the last one is what is served."""
        ...


class ElasticNetwork(Network, Protocol):
    """A family whose smaller networks are leading slices of the larger ones, so that some can hold several others."""

    @property
    def smallest(self) -> Any:
        """The least network of the family."""
        ...

    @property
    def largest(self) -> Any:
        """The whole network."""
        ...

    def validate(self, architecture: Any) -> None:
        """Raise InvalidInput unless the architecture is one of this family."""
        ...

    def envelope(self, architectures: Sequence[Any]) -> Any:
        """Return the architecture whose tensors hold all of these (Eq. 4)."""
        ...

    def columns(self, architecture: Any) -> dict[str, str]:
        """Return an architecture as columns of a cache's row, beside its MACs and parameters."""
        ...

    def read_columns(self, row: Mapping[str, str | None]) -> Any:
        """Return the architecture of a cache's row; ValueError where its columns are damaged."""
        ...
