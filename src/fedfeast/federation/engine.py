"""The interface of an engine: where a round runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fedfeast.federation.records import Assignment


@dataclass(frozen=True)
class LocalSgd:
    """The client's optimiser: plain SGD, a fresh one every round."""

    weight_decay: float = 5e-4  # on every routed position (docs/decisions/005)
    clip_norm: float = 10.0  # of the step's summed gradient


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The global vector after a round, and what was measured on the way."""

    flat: Tensor
    num_steps: int
    losses: Mapping[str, float]  # role -> mean over all passes of the round


class Engine(Protocol):
    """Runs the planned round of a method."""

    def run_round(
        self, flat: Tensor, assignments: Sequence[Assignment], round_index: int, learning_rate: float
    ) -> RoundResult:
        """Train every assignment from the same global vector and merge the answers."""
        ...
