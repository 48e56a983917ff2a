"""The interface of an engine: where a round runs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from fedfeast.federation.aggregation.accumulator import Answers
from fedfeast.federation.aggregation.refusals import NormHistory, Refusal
from fedfeast.federation.aggregation.update_policy import UpdatePolicy
from fedfeast.federation.method import Method
from fedfeast.federation.records import Assignment, Client, State
from fedfeast.federation.wire.link import Carried


class TooFewAnswers(Exception):
    """Fewer clients answered than a round needs: nothing was merged, and the round is to be tried again."""


@dataclass(frozen=True, eq=False)
class RoundOrder:
    """What a round is to do: from which global vector, by whom, at which rate, and what is done to replies."""

    flat: Tensor
    assignments: Sequence[Assignment]
    round_index: int
    learning_rate: float
    policy: UpdatePolicy = field(default_factory=UpdatePolicy)
    ahead: Sequence[Client] = ()  # who the next round will ask, as far as is known: an engine may prepare for them
    method_state: State = field(default_factory=dict)  # the method's memory that the assignments were planned from


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
    carried: Carried = field(default_factory=Carried)  # over the wire


@dataclass(frozen=True, eq=False)
class RoundResult:
    """What a round's answers were merged to, and what was measured on the way."""

    flat: Tensor  # where nobody answered, that of the order
    answered: Tensor  # where anybody answered
    num_steps: int
    losses: Mapping[str, float]  # role -> mean over all passes of the round
    setup_seconds: float = 0.0
    history: NormHistory = field(default_factory=NormHistory)
    refusals: Sequence[Refusal] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    carried: Carried = field(default_factory=Carried)


class Engine(ABC):
    """Runs the planned round of a method."""

    prepares_ahead: ClassVar[bool] = False  # whether it makes use of knowing who the next round will ask
    method: Method

    def at_work(self) -> Sequence[Assignment]:
        """Return what clients still work on that were asked in earlier rounds; none where a round waits for all."""
        return ()

    def work(self) -> State:
        """Return what is under way, as far as training needs it to go on after a stop."""
        return {}

    @abstractmethod
    def collect(self, order: RoundOrder) -> Collected:
        """Train every assignment from the same global vector and take the answers in."""

    def run_round(self, order: RoundOrder) -> RoundResult:
        """Train every assignment from the same global vector and merge the answers; a cohort may be empty."""
        if order.assignments:
            collected = self.collect(order)
        else:
            collected = Collected(order.policy.aggregator(order.flat, expected=0).answers, 0, {})
        losses = {role: total / count for role, (total, count) in sorted(collected.losses.items())}
        merged = self.method.merge(order.flat, collected.answers)
        return RoundResult(
            merged,
            collected.answers.answered(),
            collected.num_steps,
            losses,
            collected.setup_seconds,
            order.policy.history.after(collected.norms),
            tuple(collected.refusals),
            collected.notes,
            collected.carried,
        )
