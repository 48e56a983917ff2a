"""An ensemble of equal narrow networks in one flat vector: what is served is the mean of some of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt

import numpy as np
import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.networks.initialisation import draw_weights
from fedfeast.networks.layers import EPSILON, Layers, Weights
from fedfeast.networks.layout import ALIGNMENT, Layout
from fedfeast.networks.resnet import ResNet


@dataclass(frozen=True)
class Bases:
    """Some networks of an ensemble, by number."""

    numbers: tuple[int, ...]  # from 0, rising

    def __post_init__(self) -> None:
        if not self.numbers or list(self.numbers) != sorted(set(self.numbers)) or self.numbers[0] < 0:
            raise InvalidInput(f"Bases are {list(self.numbers)}: list numbers from 0 on, once, in rising order.")


@dataclass(frozen=True)
class Ensemble:
    """So many networks of the same form that share no weight."""

    base: ResNet
    number: int
    # What the weights behind the stem begin with is multiplied by its root: as if layers had as many inputs as those of
    # the network that was split.
    width: float = 1.0

    @property
    def draws(self) -> bool:
        """No layer drops anything."""
        return False

    @property
    def classes(self) -> int:
        """How many logits there are."""
        return self.base.classes

    @property
    def whole(self) -> Bases:
        """All networks."""
        return Bases(tuple(range(self.number)))

    @cached_property
    def layout(self) -> Layout:
        """The layout of all networks' flat vector."""
        return Layout.of(self.shapes(self.whole), ALIGNMENT)

    def shapes(self, bases: Bases) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of every tensor of these networks."""
        if bases.numbers[-1] >= self.number:
            raise InvalidInput(f"{bases} is not in the ensemble: it has {self.number} networks.")
        one = self.base.shapes(self.base.whole)
        return {f"{_name(number)}{name}": shape for number in bases.numbers for name, shape in one.items()}

    def macs(self, bases: Bases) -> int:
        """Return the multiply-accumulates of one inference by all of these networks."""
        return len(bases.numbers) * self.base.macs(self.base.whole)

    def convolution_macs(self, bases: Bases) -> int:
        """Return the multiply-accumulates of one inference, convolutions alone."""
        return len(bases.numbers) * self.base.convolution_macs(self.base.whole)

    def parameters(self, bases: Bases) -> int:
        """Return the number of parameters."""
        return sum(map(prod, self.shapes(bases).values()))

    def initial_weights(self, generator: np.random.Generator) -> Tensor:
        """Draw a flat float32 vector, every network another one."""
        flat = draw_weights(self.layout, generator)
        for name, view in self.layout.views(flat).items():
            if not name.endswith((".scale", ".shift", "stem.conv")):
                view.mul_(sqrt(self.width))
        return flat

    def forward(self, weights: Weights, inputs: Tensor, bases: Bases, layers: Layers) -> tuple[Tensor, ...]:
        """Return the mean logits (batch, classes) of these networks."""
        outputs = list(self._outputs(weights, inputs, bases, layers))
        return (outputs[0] if len(outputs) == 1 else torch.stack(outputs).mean(dim=0),)

    def _outputs(self, weights: Weights, inputs: Tensor, bases: Bases, layers: Layers) -> Iterator[Tensor]:
        for number in bases.numbers:
            start = _name(number)
            own = {name.removeprefix(start): one for name, one in weights.items() if name.startswith(start)}
            yield self.base.forward(own, inputs, self.base.whole, _Named(start, layers))[-1]


class _Named(Layers):
    """The layers of one network of an ensemble, by their names in the ensemble."""

    def __init__(self, start: str, layers: Layers) -> None:
        self._start, self._layers = start, layers

    def __call__(
        self, name: str, features: Tensor, scale: Tensor | None, shift: Tensor | None, epsilon: float = EPSILON
    ) -> Tensor:
        """Return the named layer's input normalised, scaled and shifted."""
        return self._layers(f"{self._start}{name}", features, scale, shift, epsilon)


def _name(number: int) -> str:
    return f"base{number}."
