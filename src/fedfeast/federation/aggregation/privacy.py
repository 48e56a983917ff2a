"""A client's update with bounded size and Gaussian noise, and what its updates reveal together."""

from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite, sqrt

import numpy as np
import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation.aggregation.refusals import norm_of


@dataclass(frozen=True)
class Privacy:
    """The Gaussian mechanism on one client's whole update: clipped to a norm, noise on every position."""

    clip_norm: float  # C; two updates of a client differ by at most 2C
    noise_multiplier: float  # the noise's standard deviation over the sensitivity 2C
    delta: float = 1e-5

    def __post_init__(self) -> None:
        if self.clip_norm <= 0 or self.noise_multiplier <= 0:
            raise InvalidInput(
                f"privacy.clip_norm = {self.clip_norm} and privacy.noise_multiplier = {self.noise_multiplier}: "
                "give both above 0."
            )
        require_delta(self.delta)

    @property
    def noise_deviation(self) -> float:
        """The standard deviation of the noise on one position."""
        return self.noise_multiplier * 2 * self.clip_norm


def require_delta(delta: float) -> None:
    """Refuse what is no probability, or a certain one."""
    if not 0 < delta < 1:
        raise InvalidInput(f"privacy.delta = {delta}: give a number above 0 and below 1, such as 1e-5.")


def privatise(sent: Tensor, returned: Tensor, privacy: Privacy, generator: np.random.Generator) -> Tensor:
    """Return the values that a client may send back in place of those it trained, given what it was sent.

    In a simulation the generator is a named one. On a fleet's client it must be ``np.random.default_rng()``: whoever
    can draw the same noise can take it away again.
    """
    change = returned - sent
    norm = norm_of(change)
    if not isfinite(norm):  # no factor would clip it
        raise InvalidInput(
            "a client's change is not finite, so nothing of it may be sent: lower training.learning_rate."
        )
    factor = min(1.0, privacy.clip_norm / norm) if norm > 0 else 1.0
    noise = generator.standard_normal(change.numel(), dtype=np.float32 if change.dtype != torch.float64 else np.float64)
    noise *= noise.dtype.type(privacy.noise_deviation)
    return sent + change * factor + torch.from_numpy(noise).to(change.device, change.dtype)


def spent_epsilon(privacy: Privacy, participations: int) -> float:
    """Return epsilon at the mechanism's delta for one client after so many updates; nothing is claimed for sampling."""
    if participations == 0:
        return 0.0
    require_accountant()
    from dp_accounting import get_epsilon_gaussian

    # So many Gaussian updates reveal as much as one with less noise by the root of their number, exactly.
    return float(get_epsilon_gaussian(privacy.noise_multiplier / sqrt(participations), privacy.delta))


def require_accountant() -> None:
    """Refuse to go on without the accountant, an optional dependency."""
    if find_spec("dp_accounting") is None:
        raise InvalidInput("[privacy] needs an accountant that is not installed: pip install 'fedfeast[privacy]'.")
