"""The difference of two that were measured on the same seeds and units, how certain it is, and whether it is chance."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

CERTAINTY = 0.95
ROUNDING = 1e-9  # relative; differences this small are those of sums that were added up in another order
HALVINGS = 60


class Chance(NamedTuple):
    """One reason why a mean may be off: its variance, and the degrees of freedom that this is known by."""

    variance: float
    freedom: int


@dataclass(frozen=True)
class PairedDifference:
    """A mean difference, and the chances that it is subject to; without any it cannot be judged."""

    mean: float
    chances: tuple[Chance, ...]
    units: int  # that every seed was measured on; 1 where only their mean is known
    seeds: int

    @property
    def error(self) -> float | None:
        """The standard error."""
        return math.sqrt(sum(one.variance for one in self.chances)) if self.chances else None

    @property
    def margin(self) -> float | None:
        """How far the true difference may lie to either side, with 95 % certainty; None where nobody can say."""
        return self._reach(CERTAINTY) if self.chances and self._is_certain else None

    @property
    def p(self) -> float | None:
        """The chance of a difference this large, either way, where there is none in truth."""
        if not self.chances:
            return None
        if self.mean == 0 or not self._is_certain:
            return 1.0
        if self._reach(CERTAINTY) <= ROUNDING * abs(self.mean):
            return 2.0 ** (1 - max(self.units, self.seeds))  # all alike: no less likely than that all have one sign
        if len(self.chances) == 1:
            (variance, freedom) = self.chances[0]
            return float(2 * stdtr(freedom, -abs(self.mean) / math.sqrt(variance)))
        least, most = 0.0, 1.0  # of p, whose margin is the difference itself
        for _ in range(HALVINGS):
            middle = (least + most) / 2
            least, most = (middle, most) if self._reach(1 - middle) > abs(self.mean) else (least, middle)
        return most

    @property
    def _is_certain(self) -> bool:
        return all(one.freedom > 0 for one in self.chances if one.variance > 0)

    def _reach(self, certainty: float) -> float:
        # Choice: each chance has the factor of its own degrees of freedom, and squares add up. One factor for both
        # (Satterthwaite's) holds the truth in 93 % of studies with three seeds instead of 95 (docs/decisions/044).
        counted = [one for one in self.chances if one.variance > 0]
        return math.sqrt(sum(float(stdtrit(one.freedom, (1 + certainty) / 2)) ** 2 * one.variance for one in counted))


def paired_difference(by_seed: Sequence[NDArray[np.float64]], same_units: bool = True) -> PairedDifference:
    """Judge differences, an array of units for every seed; units that are no number in some seed do not count.

    Units are test examples or test clients, the same in every seed unless said otherwise.
    """
    if same_units:
        table = np.stack(by_seed)  # (seeds, units)
        known = list(table[:, np.isfinite(table).all(axis=0)])
    else:
        known = [differences[np.isfinite(differences)] for differences in by_seed]
    units, seeds = min(map(len, known)), len(known)
    if not units:
        return PairedDifference(math.nan, (), 0, seeds)
    of_seeds, chances = np.array([differences.mean() for differences in known]), list[Chance]()
    if seeds > 1:
        chances.append(Chance(float(of_seeds.var(ddof=1)) / seeds, seeds - 1))
    # Choice: two chances, that of training by seeds and that of the test by units, since every seed meets every unit;
    # where seeds test on other units, their spread has both in it (docs/decisions/044).
    if units > 1 and (same_units or seeds == 1):
        of_units = np.mean(known, axis=0)
        # Units on which the two are alike say nothing about how certain the rest is: few that differ are few.
        sizes = np.abs(of_units)
        differing = int(np.count_nonzero(sizes > ROUNDING * sizes.max()))
        chances.append(Chance(float(of_units.var(ddof=1)) / units, differing - 1))
    return PairedDifference(float(of_seeds.mean()), tuple(chances), units, seeds)


def holm(chances: Sequence[float]) -> list[float]:
    """Return each p corrected for how many differences are judged at once, by Holm's steps."""
    corrected, least = [0.0] * len(chances), 0.0
    for rank, place in enumerate(np.argsort(chances, kind="stable").tolist()):
        least = max(least, min(1.0, (len(chances) - rank) * chances[place]))
        corrected[place] = least
    return corrected
