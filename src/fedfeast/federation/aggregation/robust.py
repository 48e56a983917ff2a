"""Position-wise aggregation of unequal slices that a minority of wrong answers cannot steer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Any, Literal

import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation.aggregation.disk_buffer import DiskBuffer
from fedfeast.routing import SliceMap

Rule = Literal["mean", "clipped-mean", "trimmed-mean", "median"]
LEAST_CONTRIBUTORS = 3  # below this nobody is in the minority


@dataclass(frozen=True)
class Aggregation:
    """How answers become the global vector, and which are refused."""

    rule: Rule = "mean"
    clip_multiple: float = 1.5  # of the usual norm: above it a change counts for less, the further the less
    trim_share: float = 0.2  # of a position's contributors, taken away at either end
    refuse_multiple: float | None = None  # of the usual norm, above which a reply is refused; None refuses no norm
    weigh: Literal["method", "alike"] = "method"  # what an answer weighs: as the method says, or all the same
    weight_cap: float | None = None  # of the cohort's median weight, above which no answer weighs; None caps none
    activated_share: bool = False  # whether an answer counts at a position by the share of steps that activated it

    def __post_init__(self) -> None:
        if self.clip_multiple <= 0:
            raise InvalidInput(f"aggregation.clip_multiple = {self.clip_multiple}: give a number above 0.")
        if not 0 < self.trim_share < 0.5:
            raise InvalidInput(f"aggregation.trim_share = {self.trim_share}: give a share above 0 and below 0.5.")
        if self.weight_cap is not None and not self.weight_cap >= 1:
            raise InvalidInput(f"aggregation.weight_cap = {self.weight_cap}: give a number of at least 1, or none.")
        if self.refuse_multiple is not None and self.refuse_multiple <= 0:
            raise InvalidInput(f"aggregation.refuse_multiple = {self.refuse_multiple}: give a number above 0, or none.")
        if self.activated_share and self.rule != "mean":
            raise InvalidInput(
                f"aggregation.activated_share = true weighs positions, and aggregation.rule = {self.rule!r} weighs "
                "whole answers: set aggregation.rule=mean, or activated_share=false."
            )


def clip_factors(norms: Sequence[float], bound: float) -> Tensor:
    """Return what to multiply each change with so that no norm is above the bound.

    A norm of k times the bound becomes the bound / k.
    """
    # Choice: redescending. Cut down to the bound itself, a liar would keep the full voice of an honest client and take
    # two honest clients' progress away; the further off a change is, the less it counts (docs/decisions/020).
    return torch.tensor([min(1.0, (bound / norm) ** 2) if norm > 0 else 1.0 for norm in norms], dtype=torch.float64)


def combine(changes: Tensor, weights: Tensor, factors: Tensor, options: Aggregation) -> Tensor:
    """Return one change per position of (clients, positions), NaN where a client has no say; 0 where nobody has.

    Positions with fewer than three contributors take the clipped mean under every rule.
    """
    if options.rule in ("mean", "clipped-mean"):
        return _clipped_mean(changes, weights, factors)
    # Choice: every robust rule works on clipped changes. A small cohort often holds more liars than their share, and
    # few clients reach the outer positions; where liars pass the middle, the bound is left (docs/decisions/020).
    changes = changes * factors.unsqueeze(1).to(changes.dtype)
    count = (~changes.isnan()).sum(dim=0)
    few = count < LEAST_CONTRIBUTORS
    combined = torch.empty(len(count), dtype=torch.float64)
    combined[few] = _clipped_mean(changes[:, few], weights, torch.ones_like(factors))
    many = changes[:, ~few]
    # Choice: what was cut down has as much less of a vote; as full votes near zero, a few would hold a median there.
    if options.rule == "median":
        combined[~few] = _weighted_median(many, _capped_weights(many, weights) * factors.unsqueeze(1))
    else:
        # Choice: what is trimmed counts heads; what is left lies between honest changes and is weighed by examples.
        combined[~few] = _trimmed_mean(many, weights * factors, count[~few], options.trim_share)
    return combined


def _clipped_mean(changes: Tensor, weights: Tensor, factors: Tensor) -> Tensor:
    totals, sums = (torch.zeros(changes.shape[1], dtype=torch.float64) for _ in range(2))
    for change, weight, factor in zip(changes, weights, factors, strict=True):
        totals.add_(~change.isnan(), alpha=float(weight))
        sums.add_(change.nan_to_num(0.0).double(), alpha=float(weight * factor))
    return torch.where(totals > 0, sums / totals, 0.0)


def _capped_weights(changes: Tensor, weights: Tensor) -> Tensor:
    """Return (clients, positions): a client's weight, at most the median of those who have a say there, else 0."""
    # Choice: a client says itself how much data it has. So capped, none of three or more has half the weight, and
    # clients with next to no data, however many, do not outvote the others (docs/decisions/020).
    own = torch.where(changes.isnan(), torch.nan, weights.unsqueeze(1))
    return torch.minimum(own, own.nanmedian(dim=0).values).nan_to_num(0.0)


def _weighted_median(changes: Tensor, weights: Tensor) -> Tensor:
    """Return the value with half the weight on either side, the middle of two where they share it."""
    ordered, order = changes.sort(dim=0)  # NaN comes last, and weighs nothing
    up_to = weights.gather(0, order).cumsum(dim=0)
    half = up_to[-1] / 2
    nearly = half * 1e-9  # equal sums may differ by rounding
    lower, upper = (
        ordered.gather(0, passed.to(torch.uint8).argmax(dim=0, keepdim=True))[0].double()
        for passed in (up_to >= half - nearly, up_to > half + nearly)
    )
    return (lower + upper) / 2


def _trimmed_mean(changes: Tensor, weights: Tensor, count: Tensor, share: float) -> Tensor:
    """Return the weighted mean of what is left where the same number of clients is taken away at either end."""
    ordered, order = changes.sort(dim=0)
    cut = _trimmed(count, share)
    totals, sums = (torch.zeros(changes.shape[1], dtype=torch.float64) for _ in range(2))
    for rank, (values, clients) in enumerate(zip(ordered, order, strict=True)):
        kept = torch.where((rank >= cut) & (rank < count - cut), weights[clients], 0.0)
        totals += kept
        sums += kept * values.nan_to_num(0.0).double()
    return sums / totals


def _trimmed(count: Tensor, share: float) -> Tensor:
    """Return how many go at either end: the share, rounded up, so that of three contributors one is left."""
    most = int(count.max()) if len(count) else 0
    table = [min(ceil(round(share * one, 9)), max(one - 1, 0) // 2) for one in range(most + 1)]
    return torch.tensor(table)[count]


class BufferedAnswers:
    """Changes of a cohort that wait on disk until all are there; then one robust change per position."""

    def __init__(self, size: int, expected: int, dtype: torch.dtype, options: Aggregation, bound: float | None) -> None:
        self._buffer, self._options, self._bound = DiskBuffer(size, expected, dtype), options, bound
        self._norms: list[float] = []
        self._weights: list[float] = []
        self._gather: Callable[[Any], list[Any]] = lambda value: [value]
        self._answered = torch.zeros(size, dtype=torch.bool)

    def shared(self, gather: Callable[[Any], list[Any]]) -> "BufferedAnswers":
        """Return the same answers as a share of those that ``gather`` brings together."""
        self._gather = gather
        return self

    def add(self, slice_map: SliceMap, change: Tensor, norm: float, weight: float, counted: Tensor | None) -> None:
        """Keep one client's change."""
        self._buffer.add(slice_map, change, counted)
        self._norms.append(norm)
        self._weights.append(weight)

    def merged_with(self, previous: Tensor) -> Tensor:
        """Return the robust result where somebody answered, else the previous value bit for bit; once."""
        with self._buffer:
            shares = self._gather((self._norms, self._weights))
            norms = [norm for share in shares for norm in share[0]]
            weights = [weight for share in shares for weight in share[1]]
            if not norms:
                self._answered = self._answered.to(previous.device)
                return previous
            # Choice: without an earlier round the bound is that of this round itself.
            bound = self._options.clip_multiple * median(norms) if self._bound is None else self._bound
            factors, weighing = clip_factors(norms, bound), torch.tensor(weights, dtype=torch.float64)
            merged = previous.clone()
            for place, own in self._buffer.blocks():
                changes = torch.cat(self._gather(own))
                change = combine(changes, weighing, factors, self._options).to(previous.device)
                moved = (previous[place].double() + change).to(previous.dtype)
                merged[place] = torch.where(change != 0, moved, previous[place])
                self._answered[place] = (~changes.isnan()).any(dim=0)
            self._answered = self._answered.to(previous.device)
            return merged

    def answered(self) -> Tensor:
        """Return where anybody has a say; known once the answers are merged."""
        return self._answered

    def close(self) -> None:
        """Give the disk space back where the round was given up."""
        self._buffer.close()
