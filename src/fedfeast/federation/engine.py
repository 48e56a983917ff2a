"""The interface of an engine: where a round runs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedfeast.federation.aggregation import Accumulator
from fedfeast.federation.method import Method
from fedfeast.federation.records import Assignment


@dataclass(frozen=True, eq=False)
class Collected:
    """What a cohort, or a share of it, sent back; shares add up."""

    answers: Accumulator
    num_steps: int
    losses: Mapping[str, tuple[float, int]]  # role -> sum over all passes, and how many there were
    setup_seconds: float = 0.0  # spent on what later rounds are spared: compiling, capturing


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The global vector after a round, and what was measured on the way."""

    flat: Tensor
    num_steps: int
    losses: Mapping[str, float]  # role -> mean over all passes of the round
    setup_seconds: float = 0.0


class Engine(ABC):
    """Runs the planned round of a method."""

    method: Method

    @abstractmethod
    def collect(
        self, flat: Tensor, assignments: Sequence[Assignment], round_index: int, learning_rate: float
    ) -> Collected:
        """Train every assignment from the same global vector and add up the answers."""

    def run_round(
        self, flat: Tensor, assignments: Sequence[Assignment], round_index: int, learning_rate: float
    ) -> RoundResult:
        """Train every assignment from the same global vector and merge the answers."""
        collected = self.collect(flat, assignments, round_index, learning_rate)
        losses = {role: total / count for role, (total, count) in sorted(collected.losses.items())}
        merged = self.method.merge(flat, collected.answers)
        return RoundResult(merged, collected.num_steps, losses, collected.setup_seconds)
