"""Which weights some client trains: a served network may hold others, and its manifest says how many."""

from collections.abc import Hashable
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from fedfeast.planning.outline import Outline


def trained_architectures(built: Outline) -> list[Hashable]:
    """Return the networks that participating clients pass through."""
    return list(dict.fromkeys(one for group in built.groups for one in group.expected_passes(built.method)))


class TrainedSupport:
    """The positions of the global vector that some client's passes go through."""

    def __init__(self, built: Outline) -> None:
        self._built, self._network = built, built.method.network

    def untrained_share(self, architecture: Hashable) -> float | None:
        """Return the share of a network's weights that no client ever trains; None where that cannot be told."""
        maps = [one.slice_map for group in self._built.groups for one in group.assignments]
        # Networks drawn at random, windows that roll and masks that move reach other weights in every round.
        if self._built.method.plans_differ or not all(one.is_leading for one in maps):
            return None
        shapes = self._network.shapes(architecture)
        trained = sum(int(view.sum()) for view in self._network.layout.views(self._reached, shapes).values())
        return 1 - trained / sum(map(prod, shapes.values()))

    @cached_property
    def _reached(self) -> Tensor:
        reached = self._network.layout.zeros(torch.bool)
        for architecture in trained_architectures(self._built):
            for view in self._network.layout.views(reached, self._network.shapes(architecture)).values():
                view.fill_(True)
        return reached
