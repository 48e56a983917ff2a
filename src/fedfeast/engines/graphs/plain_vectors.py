"""Flat vectors through a routed index, in plain PyTorch: for any precision and device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedfeast.engines.graphs.blueprint import Blueprint
from fedfeast.federation import LocalSgd

Ranges = Sequence[tuple[int, int]]  # of an index's entries: from where to where


@dataclass(frozen=True, eq=False)
class ClientVectors:
    """A client's flat vectors."""

    weights: Tensor
    gradient: Tensor
    velocity: Tensor | None = None  # where its optimiser has momentum


class Vectors(Protocol):
    """What happens to the flat vectors of clients between passes."""

    def gather(self, source: Tensor, blueprint: Blueprint, low: Tensor, full: Tensor) -> None:
        """Copy an architecture's weights in: convolutions rounded, all others whole."""
        ...

    def add_gradients(self, gradient: Tensor, partials: Tensor, blueprint: Blueprint) -> None:
        """Add up the partial gradients of a pass at their positions."""
        ...

    def step(self, client: ClientVectors, index: Tensor, sgd: LocalSgd, rate: float, ranges: Ranges | None) -> None:
        """Clip at the indexed positions, step there or in some ranges of them; the gradient is zero afterwards."""
        ...

    def accumulate(self, totals: Tensor, source: Tensor, index: Tensor, weight: float, factor: float) -> None:
        """Add weight * factor * source to the sums and weight to the weights, at the indexed positions."""
        ...


class PlainVectors:
    """The reference for kernels that do the same in one go; indices are of single positions."""

    def gather(self, source: Tensor, blueprint: Blueprint, low: Tensor, full: Tensor) -> None:
        """Copy an architecture's weights in: convolutions rounded, all others whole."""
        values, rounded = source[blueprint.index.clamp(min=0).long()], blueprint.num_rounded
        low[:rounded] = values[:rounded]
        full[: len(values) - rounded] = values[rounded:]

    def add_gradients(self, gradient: Tensor, partials: Tensor, blueprint: Blueprint) -> None:
        """Add up the partial gradients of a pass at their positions."""
        for name, place in blueprint.plan.places.items():
            start = blueprint.layout.offsets[name]
            positions = blueprint.index[start : start + place.size].long()
            gradient[positions] += place.of(partials).view(place.parts, place.size).sum(dim=0)

    def step(self, client: ClientVectors, index: Tensor, sgd: LocalSgd, rate: float, ranges: Ranges | None) -> None:
        """Clip at the indexed positions, step there or in some ranges of them; the gradient is zero afterwards."""
        weights, gradient, velocity = client.weights, client.gradient, client.velocity
        scale = (sgd.clip_norm / (torch.linalg.vector_norm(gradient[index.long()]) + 1e-6)).clamp(max=1.0)
        for start, stop in [(0, len(index))] if ranges is None else ranges:
            positions = index[start:stop].long()
            slope = gradient[positions]
            if velocity is None:
                weights[positions] = weights[positions] * (1.0 - rate * sgd.weight_decay) - rate * scale * slope
            else:
                pushed = sgd.momentum * velocity[positions] + scale * slope + sgd.weight_decay * weights[positions]
                velocity[positions] = pushed
                weights[positions] -= rate * pushed
            gradient[positions] = 0

    def accumulate(self, totals: Tensor, source: Tensor, index: Tensor, weight: float, factor: float) -> None:
        """Add weight * factor * source to the sums and weight to the weights, at the indexed positions."""
        positions = index.long()
        totals[0, positions] += weight * factor * source[positions].to(totals.dtype)
        totals[1, positions] += weight
