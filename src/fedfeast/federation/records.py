"""The records that a round passes between method, engine and evaluation."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

from torch import Tensor

from fedfeast.networks import Layout, Network
from fedfeast.networks.layers import Layers, Weights
from fedfeast.routing import SliceMap

State = Mapping[str, Tensor]  # a method's memory, handed from round to round
Constants = Mapping[str, Tensor]  # what stays the same for a client over a round, of equal shapes for all clients


@dataclass(frozen=True)
class Client:
    """What the server knows of a client."""

    index: int
    name: str
    budget_macs: float
    num_examples: int
    held_classes: tuple[int, ...] = ()  # that its examples have, sorted


@dataclass(frozen=True)
class Assignment:
    """A client's part in one round: what it receives, what it may train, how much its answer weighs."""

    client: Client
    slice_map: SliceMap
    architectures: tuple[Hashable, ...]  # that the client may train, least first
    weight: float
    constants: Constants = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass of a local step: which network, in which role."""

    architecture: Hashable
    role: str
    part: float = 1.0  # of the mini-batch's examples that it is given: the first ones

    def rows(self, num_examples: int) -> int:
        """Return how many examples of a mini-batch it is given; batch statistics need two."""
        if self.part == 1:
            return num_examples
        # Ten decimals first: a product such as 0.55 * 100 lies a little above the whole number it means.
        return min(num_examples, max(2, ceil(round(self.part * num_examples, 10))))


@dataclass(frozen=True)
class OperatingPoint:
    """A network that a trained federation can serve.

    Where the weights decide the cost, MACs and parameters are what the network keeps below; ``Deployed`` has the cost.
    """

    name: str
    macs: int
    parameters: int
    architecture: Hashable
    listed_price: int | None = None  # in MACs, where its cache has prices

    @property
    def price(self) -> int:
        """The MACs that budgets are compared with: its own, unless its cache says otherwise."""
        return self.macs if self.listed_price is None else self.listed_price


@dataclass(frozen=True, eq=False)
class Deployed:
    """A stand-alone network: exactly its own weights, taken out of the global vector."""

    network: Network
    architecture: Hashable
    layout: Layout
    flat: Tensor
    macs: int
    parameters: int
    is_sliced: bool = False  # whether each of its tensors is a leading slice of the global vector's

    @cached_property
    def weights(self) -> Weights:
        """Every tensor as a view of the flat vector, by name."""
        return self.layout.views(self.flat)

    def __call__(self, images: Tensor, layers: Layers) -> Tensor:
        """Return the served logits (batch, classes) of normalised images."""
        return self.network.forward(self.weights, images, self.architecture, layers)[-1]
