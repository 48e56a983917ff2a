"""Clients that lie, for tests and studies of what aggregation withstands."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedfeast.errors import InvalidInput


@dataclass(frozen=True)
class Adversary:
    """Some clients send their change inverted and enlarged."""

    clients: frozenset[int]  # indices
    enlargement: float = 10.0
    claimed_multiple: float = 1.0  # of the examples they have: what they say they have

    def attack(self, sent: Tensor, returned: Tensor) -> Tensor:
        """Return what an adversary sends in place of what it trained."""
        return sent - self.enlargement * (returned - sent)


def choose_adversaries(participants: Sequence[int], share: float, generator: np.random.Generator) -> frozenset[int]:
    """Draw a share of the clients, rounded to whole ones."""
    count = round(share * len(participants))
    if share > 0 and count == 0:
        raise InvalidInput(f"adversary.share = {share} of {len(participants)} clients is no client: raise it.")
    return frozenset(np.asarray(participants)[generator.choice(len(participants), count, replace=False)].tolist())
