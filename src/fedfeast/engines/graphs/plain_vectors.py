"""Flat vectors through a routed index, in plain PyTorch: for any precision and device."""

from typing import Protocol

import torch
from torch import Tensor

from fedfeast.engines.graphs.blueprint import Blueprint
from fedfeast.federation import LocalSgd


class Vectors(Protocol):
    """What happens to the flat vectors of clients between passes."""

    def gather(self, source: Tensor, blueprint: Blueprint, low: Tensor, full: Tensor) -> None:
        """Copy an architecture's weights in: convolutions rounded, all others whole."""
        ...

    def add_gradients(self, gradient: Tensor, partials: Tensor, blueprint: Blueprint) -> None:
        """Add up the partial gradients of a pass at their positions."""
        ...

    def step(self, weights: Tensor, gradient: Tensor, index: Tensor, sgd: LocalSgd, rate: float) -> None:
        """Clip, decay and step at the indexed positions; the gradient is zero afterwards."""
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

    def step(self, weights: Tensor, gradient: Tensor, index: Tensor, sgd: LocalSgd, rate: float) -> None:
        """Clip, decay and step at the indexed positions; the gradient is zero afterwards."""
        positions = index.long()
        slope = gradient[positions]
        scale = (sgd.clip_norm / (torch.linalg.vector_norm(slope) + 1e-6)).clamp(max=1.0)
        weights[positions] = weights[positions] * (1.0 - rate * sgd.weight_decay) - rate * scale * slope
        gradient[positions] = 0

    def accumulate(self, totals: Tensor, source: Tensor, index: Tensor, weight: float, factor: float) -> None:
        """Add weight * factor * source to the sums and weight to the weights, at the indexed positions."""
        positions = index.long()
        totals[0, positions] += weight * factor * source[positions].to(totals.dtype)
        totals[1, positions] += weight
