"""Whether private updates are heard above their noise: by the recipe's own figures, before anything is trained."""

import logging
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from fedfeast.federation import Privacy
from fedfeast.planning.outline import Outline
from fedfeast.recipes.building import build_privacy


@dataclass(frozen=True)
class PrivacyNoise:
    """The noise on a merged update, and what it would take to bring it down to the update's own size."""

    over_update: float  # the noise's norm over the greatest that the update can have
    positions: int  # of the largest slice sent
    clients_per_round: int
    clients: int

    @property
    def needed_per_round(self) -> int:
        """How many clients a round would need: noise falls with the root of their number."""
        return ceil(self.clients_per_round * self.over_update**2)

    @property
    def needed_clients(self) -> int:
        """How many clients that is of, where nobody takes part more often than now."""
        return ceil(self.clients * self.over_update**2)


def measure_noise(built: Outline, num_examples: NDArray[np.int64]) -> PrivacyNoise | None:
    """Return the noise on an average round's merged update; None without privacy.

    Every client's change has norm C at most, and so has their mean. On a position that m of a round's clients send,
    the mean of their noise has the deviation 2 C x noise_multiplier / sqrt(m), m counted by what answers weigh.
    """
    privacy, recipe = build_privacy(built.recipe), built.recipe
    if privacy is None:
        return None
    participants = np.array(built.participants)
    cohort = min(recipe.training.clients_per_round, len(participants))
    payloads = np.zeros(len(built.population.budgets_macs))
    for group in built.groups:
        payloads[group.clients] = group.payload
    payloads = payloads[participants]
    weights = np.ones(len(participants)) if recipe.aggregation.weigh == "alike" else num_examples[participants] + 0.0
    order = np.argsort(-payloads)  # the largest slices first: whoever sends a position is sent all smaller slices'
    total, squares = np.cumsum(weights[order]), np.cumsum(weights[order] ** 2)
    contributors = np.maximum(total**2 / squares * cohort / len(participants), 1.0)  # a round, of those up to here
    sizes = payloads[order]
    # Positions beyond the next smaller slice are sent by nobody of those that come later.
    beyond = sizes - np.append(sizes[1:], 0.0)
    noise = 2 * privacy.noise_multiplier * float(np.sqrt((beyond / contributors).sum()))
    return PrivacyNoise(noise, int(sizes[0]), cohort, len(participants))


def warn_of_noise(noise: PrivacyNoise | None, privacy: Privacy | None) -> None:
    """Warn where what clients send is mostly noise, and say how many of them it would take."""
    if noise is None or privacy is None or noise.over_update <= 1:
        return
    logging.getLogger("fedfeast").warning(
        "the privacy noise on a round's update is %.3g times the update itself (noise_multiplier %g, %s clients a "
        "round, up to %s positions each): training will mostly follow noise. It would take about %s clients a round "
        "out of %s, a network of fewer positions, or less noise; docs/privacy.md has an example that works",
        *(noise.over_update, privacy.noise_multiplier, f"{noise.clients_per_round:,}", f"{noise.positions:,}"),
        *(f"{noise.needed_per_round:,}", f"{noise.needed_clients:,}"),
    )
