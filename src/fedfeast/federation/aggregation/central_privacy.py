"""Central differential privacy: a trusted server clips every client's change and adds noise once to their sum."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np
import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation.aggregation.accumulator import Accumulator
from fedfeast.federation.aggregation.privacy import require_accountant, require_delta

LOSS_INTERVAL = 1e-3  # of the accountant's privacy losses, rounded up; a tenth of it changes the fifth digit alone
LEAST_AMPLIFIED = 0.1  # below this noise multiplier the accountant takes minutes, and sampling is not counted


@dataclass(frozen=True)
class CentralPrivacy:
    """The Gaussian mechanism on a round's weighted sum of clipped changes (docs/decisions/039)."""

    clip_norm: float  # C, of a client's whole change, over all positions it was sent
    noise_multiplier: float  # the noise's standard deviation over the sensitivity
    delta: float = 1e-5
    usual_examples: float | None = None  # a client with so many weighs 1, others in proportion; None: all weigh 1
    most_weight: float = 1.0  # that any client weighs, whatever it holds
    least_holders: float = 1.0  # what a position's sum is divided by at least: it bounds the noise where few hold it

    def __post_init__(self) -> None:
        """Refuse what bounds nothing, or hides nothing."""
        positive = {"clip_norm": self.clip_norm, "noise_multiplier": self.noise_multiplier}
        positive |= {"most_weight": self.most_weight, "least_holders": self.least_holders}
        if self.usual_examples is not None:
            positive["usual_examples"] = self.usual_examples
        for name, number in positive.items():
            if not (number > 0 and isfinite(number)):
                raise InvalidInput(f"privacy.{name} = {number}: give a positive number.")
        if self.usual_examples is None and self.most_weight != 1:
            raise InvalidInput(
                f"privacy.most_weight = {self.most_weight:g} has no effect where all clients weigh 1: set "
                "privacy.usual_examples too, or leave it out."
            )
        require_delta(self.delta)

    @property
    def sensitivity(self) -> float:
        """How far one client's answer can move a round's sum: the clipped norm at the greatest weight."""
        return self.most_weight * self.clip_norm

    @property
    def noise_deviation(self) -> float:
        """The standard deviation of the noise on one position of the sum."""
        return self.noise_multiplier * self.sensitivity

    def weight(self, by_method: float) -> float:
        """Return what an answer weighs, given what it weighs without privacy: its examples, for most methods."""
        return 1.0 if self.usual_examples is None else min(by_method / self.usual_examples, self.most_weight)

    def clipped(self, change: Tensor, norm: float) -> Tensor:
        """Return a client's change, cut down to the clip norm where its own is larger."""
        return change * (self.clip_norm / norm) if norm > self.clip_norm else change


@dataclass(frozen=True, eq=False)
class CentralRound:
    """What one round of the mechanism needs beside the answers; none of it depends on what clients hold."""

    privacy: CentralPrivacy
    holders: Tensor  # (positions,) how many of a round's clients are expected to be sent each
    noise_seed: int


class PrivateSums(Accumulator):
    """The weighted sum of clipped changes; merged, it is divided by public numbers and has its noise."""

    def __init__(self, flat: Tensor, central: CentralRound) -> None:
        super().__init__(flat.numel(), flat.device)
        self._central = central

    def merged_with(self, previous: Tensor) -> Tensor:
        """Return the noisy step from the previous vector; every position that anybody may hold has noise.

        So it does where nobody of this round holds it: that it stands still would tell who took part.
        """
        central, size = self._central, self.sums.numel()
        noise = np.random.default_rng(central.noise_seed).standard_normal(size) * central.privacy.noise_deviation
        noisy = self.sums + torch.from_numpy(noise).to(self.sums.device)
        holders = central.holders.to(self.sums.device).clamp(min=central.privacy.least_holders)
        moved = (previous.double() + noisy / holders).to(previous.dtype)
        return torch.where(self.answered(), moved, previous)

    def answered(self) -> Tensor:
        """Return where any client that may be drawn holds a position, whoever took part."""
        return torch.gt(self._central.holders.to(self.sums.device), 0)


def spent_centrally(privacy: CentralPrivacy, releases: Mapping[float, int]) -> float:
    """Return epsilon at the mechanism's delta after rounds by their sampling rate, each a Poisson draw of its own."""
    rounds = sum(releases.values())
    if not rounds:
        return 0.0
    require_accountant()
    import dp_accounting

    if privacy.noise_multiplier < LEAST_AMPLIFIED or all(rate >= 1 for rate in releases):
        # Rounds that everybody takes part in reveal as much as one with less noise by the root of their number.
        return float(dp_accounting.get_epsilon_gaussian(privacy.noise_multiplier / sqrt(rounds), privacy.delta))
    accountant = dp_accounting.pld.PLDAccountant(
        dp_accounting.NeighboringRelation.REPLACE_SPECIAL, value_discretization_interval=LOSS_INTERVAL
    )
    for rate, count in releases.items():
        round_event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(privacy.noise_multiplier))
        accountant.compose(round_event, count)
    return float(accountant.get_epsilon(privacy.delta))
