"""The interface of an engine: where a round runs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedfeast.federation.aggregation import Answers
from fedfeast.federation.method import Method
from fedfeast.federation.records import Assignment
from fedfeast.federation.replies import NormHistory, Refusal
from fedfeast.federation.treatment import Treatment

PLAIN = Treatment()


class TooFewAnswers(Exception):
    """Fewer clients answered than a round needs: nothing was merged, and the round is to be tried again."""


@dataclass(frozen=True, eq=False)
class Collected:
    """What a cohort, or a share of it, sent back; shares add up."""

    answers: Answers
    num_steps: int
    losses: Mapping[str, tuple[float, int]]  # role -> sum over all passes, and how many there were
    setup_seconds: float = 0.0  # spent on what later rounds are spared: compiling, capturing
    norms: Sequence[float] = ()  # of accepted changes, where they are looked at
    refusals: Sequence[Refusal] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)  # for the round's line of metrics


@dataclass(frozen=True, eq=False)
class RoundResult:
    """The global vector after a round, and what was measured on the way."""

    flat: Tensor
    num_steps: int
    losses: Mapping[str, float]  # role -> mean over all passes of the round
    setup_seconds: float = 0.0
    history: NormHistory = field(default_factory=NormHistory)
    refusals: Sequence[Refusal] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


class Engine(ABC):
    """Runs the planned round of a method."""

    method: Method

    @abstractmethod
    def collect(
        self,
        flat: Tensor,
        assignments: Sequence[Assignment],
        round_index: int,
        learning_rate: float,
        treatment: Treatment = PLAIN,
    ) -> Collected:
        """Train every assignment from the same global vector and take the answers in."""

    def run_round(
        self,
        flat: Tensor,
        assignments: Sequence[Assignment],
        round_index: int,
        learning_rate: float,
        treatment: Treatment = PLAIN,
    ) -> RoundResult:
        """Train every assignment from the same global vector and merge the answers."""
        collected = self.collect(flat, assignments, round_index, learning_rate, treatment)
        losses = {role: total / count for role, (total, count) in sorted(collected.losses.items())}
        merged = self.method.merge(flat, collected.answers)
        return RoundResult(
            merged,
            collected.num_steps,
            losses,
            collected.setup_seconds,
            treatment.history.after(collected.norms),
            tuple(collected.refusals),
            collected.notes,
        )
