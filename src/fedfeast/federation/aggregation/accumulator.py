"""Position-wise weighted aggregation of unequal slices (Sec. 3.3, Eq. 7)."""

from typing import Protocol

import torch
from torch import Tensor

from fedfeast.routing import SliceMap


class Answers(Protocol):
    """What a cohort answered, to be merged into the global vector."""

    def merged_with(self, previous: Tensor) -> Tensor:
        """Return the merged value where somebody answered, else the previous value bit for bit."""
        ...

    def answered(self) -> Tensor:
        """Return where anybody answered, as a mask of the global vector; known once the answers are merged."""
        ...


class Accumulator:
    """A running weighted sum per position in float64; clients are added one by one and then forgotten."""

    def __init__(self, size: int, device: torch.device | str = "cpu") -> None:
        self.totals = torch.zeros((2, size), dtype=torch.float64, device=device)  # of shares of a cohort, these add up
        self.sums, self.weights = self.totals

    def add(self, slice_map: SliceMap, local: Tensor, weight: float, counted: Tensor | None = None) -> None:
        """Add one client's returned values n_i * theta_i[u] and its weight n_i at every position it was sent.

        Where ``counted``, of the client's layout, is false the client has no say; a share counts for as much of n_i.
        """
        if counted is None:
            slice_map.add_(self.sums, local, weight)
            slice_map.increment_(self.weights, weight)
        else:
            if counted.dtype == torch.bool:
                slice_map.add_(self.sums, torch.where(counted, local, 0), weight)
            else:
                slice_map.add_(self.sums, torch.where(counted > 0, counted * local, 0), weight)
            slice_map.add_(self.weights, counted, weight)

    def merged_with(self, previous: Tensor) -> Tensor:
        """Return the weighted mean where somebody answered, else the previous value bit for bit."""
        averaged = (self.sums / self.weights).to(previous.dtype)
        return torch.where(self.answered(), averaged, previous)

    def answered(self) -> Tensor:
        """Return where anybody has a say."""
        return torch.gt(self.weights, 0)


class ChangeAccumulator(Accumulator):
    """The same of changes, each against the vector that its client was sent: they may be of different ages."""

    def add_cohort(self, answers: Accumulator, sent: Tensor, factor: float) -> None:
        """Add what clients answered to one and the same vector, their change multiplied by a factor."""
        self.sums.add_(answers.sums - answers.weights * sent, alpha=factor)
        self.weights.add_(answers.weights)

    def merged_with(self, previous: Tensor) -> Tensor:
        """Return the previous value moved by the weighted mean of changes where somebody answered, else itself."""
        moved = (previous + self.sums / self.weights).to(previous.dtype)
        return torch.where(self.answered(), moved, previous)
