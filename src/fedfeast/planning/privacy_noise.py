"""Whether private updates are heard above their noise: by the recipe's own figures, before anything is trained."""

import logging
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfeast.federation import sampling_rate, spent_centrally
from fedfeast.planning.outline import Outline
from fedfeast.recipes.building import build_central_privacy, build_privacy


@dataclass(frozen=True)
class PrivacyNoise:
    """The noise on a merged update, and what it would take to bring it down to the update's own size."""

    over_update: float  # the noise's norm over the greatest that the update can have
    positions: int  # of the largest slice sent
    clients_per_round: int
    clients: int
    is_central: bool = False

    @property
    def enlargement(self) -> float:
        """How many times as many clients it takes: central noise falls with their number, local with its root."""
        return self.over_update if self.is_central else self.over_update**2

    @property
    def needed_per_round(self) -> int:
        """How many clients a round would need."""
        return ceil(self.clients_per_round * self.enlargement)

    @property
    def needed_clients(self) -> int:
        """How many clients that is of, where nobody takes part more often than now."""
        return ceil(self.clients * self.enlargement)


def measure_noise(built: Outline, num_examples: NDArray[np.int64]) -> PrivacyNoise | None:
    """Return the noise on an average round's merged update; None without privacy.

    Every client's change has norm C at most, and so has their mean. On a position that m of a round's clients send,
    the mean of their noise has the deviation 2 C x noise_multiplier / sqrt(m), m counted by what answers weigh. Noise
    that the server adds to their sum has most_weight x C x noise_multiplier / m.
    """
    recipe = built.recipe
    privacy, central = build_privacy(recipe), build_central_privacy(recipe)
    if privacy is None and central is None:
        return None
    participants = np.array(built.participants)
    cohort = min(recipe.training.clients_per_round, len(participants))
    payloads = np.zeros(len(built.population.budgets_macs))
    for group in built.groups:
        payloads[group.clients] = group.payload
    payloads = payloads[participants]
    alike = recipe.aggregation.weigh == "alike" or central is not None
    weights = np.ones(len(participants)) if alike else num_examples[participants] + 0.0
    order = np.argsort(-payloads)  # the largest slices first: whoever sends a position is sent all smaller slices'
    total, squares = np.cumsum(weights[order]), np.cumsum(weights[order] ** 2)
    contributors = total**2 / squares * cohort / len(participants)  # a round, of those up to here
    sizes = payloads[order]
    # Positions beyond the next smaller slice are sent by nobody of those that come later.
    beyond = sizes - np.append(sizes[1:], 0.0)
    if central is not None:
        relative = central.noise_deviation / central.clip_norm
        divisors = np.maximum(contributors, central.least_holders)
        noise = relative * float(np.sqrt((beyond / divisors**2).sum()))
    else:
        noise = 2 * recipe.privacy.noise_multiplier * float(np.sqrt((beyond / np.maximum(contributors, 1.0)).sum()))
    largest = max(group.largest_payload for group in built.groups)
    return PrivacyNoise(noise, largest, cohort, len(participants), central is not None)


def plan_privacy(built: Outline, num_examples: NDArray[np.int64]) -> dict[str, Any] | None:
    """Return what a server's noise will have spent after all rounds, and how loud it is; None without such noise."""
    central, training = build_central_privacy(built.recipe), built.recipe.training
    noise = measure_noise(built, num_examples)
    if central is None or noise is None:
        return None
    rate = sampling_rate(len(built.participants), training.clients_per_round)
    return {
        "mechanism": "central",
        "epsilon": spent_centrally(central, {rate: training.rounds}),
        "delta": central.delta,
        "rounds": training.rounds,
        "sampling_rate": rate,
        "noise_over_update": noise.over_update,
    }


def warn_of_noise(noise: PrivacyNoise | None, noise_multiplier: float) -> None:
    """Warn where what clients send is mostly noise, and say how many of them it would take."""
    if noise is None or noise.over_update <= 1:
        return
    logging.getLogger("fedfeast").warning(
        "the privacy noise on a round's update is %s times the update itself (noise_multiplier %g, %s clients a "
        "round, up to %s positions each): training will mostly follow noise. It would take about %s clients a round "
        "out of %s, a network of fewer positions, or less noise; docs/privacy.md has an example that works",
        *(_times(noise.over_update), noise_multiplier, f"{noise.clients_per_round:,}", f"{noise.positions:,}"),
        *(f"{noise.needed_per_round:,}", f"{noise.needed_clients:,}"),
    )


def _times(factor: float) -> str:
    return f"{factor:,.0f}" if factor >= 100 else f"{factor:.3g}"
