"""What candidates came to and what they took, side by side."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from fedfeast.evaluation import CurvePoint
from fedfeast.evaluation.curve import NORMAL_95
from fedfeast.evaluation.fairness import tenths
from fedfeast.planning.plan import plan_compute
from fedfeast.runs import Run
from fedfeast.studies.results import Outcome


@dataclass(frozen=True, eq=False)
class Standing:
    """What a candidate came to and what it took, means over its seeds."""

    name: str
    label: str
    outcomes: tuple[Outcome, ...]  # a seed each
    traffic_bytes: float  # that training sent, both ways, in all
    pmacs: float  # that all clients computed in training, by the paper's proxy
    seconds: float  # that the rounds took on this machine

    @classmethod
    def of(cls, name: str, label: str, outcomes: Sequence[Outcome]) -> Self:
        """Read what a candidate's runs took."""
        runs = [outcome.run for outcome in outcomes if outcome.run is not None]
        return cls(
            name,
            label,
            tuple(outcomes),
            statistics.fmean(map(_sent, runs)),
            statistics.fmean(plan_compute(run.recipe)["training_pmacs"] for run in runs),
            statistics.fmean(float(run.summary["training_seconds"]) for run in runs),
        )

    @cached_property
    def score(self) -> float:
        """The population score."""
        return self._mean(lambda one: one.curve.population_score(one.budgets_macs))

    @property
    def merit(self) -> float:
        """Its score, greater for what is better."""
        return self.outcomes[0].curve.metric.merit(self.score)

    @property
    def score_reach(self) -> float:
        """Within which of its score 95 % of scores on other test examples lie."""
        return NORMAL_95 * self._mean(lambda one: _mean_error(one, np.arange(len(one.budgets_macs))))

    @cached_property
    def worst_score(self) -> float:
        """The score of the tenth of clients, by budgets, that is served worst."""
        return self._mean(lambda one: float(_values(one)[worst_tenth(one)].mean()))

    @property
    def worst_merit(self) -> float:
        """The same, greater for what is better."""
        return self.outcomes[0].curve.metric.merit(self.worst_score)

    @cached_property
    def served(self) -> float:
        """The share of clients that any of its networks fits."""
        return self._mean(lambda one: one.curve.served_share(one.budgets_macs))

    @property
    def rounds(self) -> int:
        """How many it trained."""
        return self.outcomes[0].recipe.training.rounds

    def is_clearly_fairer(self, other: "Standing") -> bool:
        """Return whether its worst-served tenth is better off by more than other test examples may change."""
        errors = (one._mean(lambda outcome: _mean_error(outcome, worst_tenth(outcome))) for one in (self, other))
        return self.worst_merit - other.worst_merit > NORMAL_95 * math.hypot(*errors)

    def _mean(self, of: Callable[[Outcome], float]) -> float:
        return statistics.fmean(map(of, self.outcomes))


def worst_tenth(outcome: Outcome) -> np.ndarray:
    """Return the places of the clients, a tenth by budgets, that are served worst."""
    values, merit = _values(outcome), outcome.curve.metric.merit
    return min(tenths(outcome.budgets_macs), key=lambda group: merit(float(values[group].mean())))


def _values(outcome: Outcome) -> np.ndarray:
    return outcome.curve.client_values(outcome.budgets_macs)


def _mean_error(outcome: Outcome, clients: np.ndarray) -> float:
    """Return the standard error, over test examples, of what some clients get on average."""
    # Points of a curve are measured on the same examples: their errors add up as if they went all the same way.
    errors = np.array([0.0, *map(_error, outcome.curve.points)])  # the first is of having no network
    return float(errors[outcome.curve.count_affordable(outcome.budgets_macs[clients])].mean())


def _error(point: CurvePoint) -> float:
    """Return the standard error of a value: over the examples' clients, else of a share of examples, else none."""
    if point.standard_error is not None:
        return point.standard_error
    if not point.examples:
        return 0.0
    # Two right and two wrong answers added (Agresti and Coull): there is chance even where all examples are right.
    examples = point.examples + 4
    share = (point.value * point.examples + 2) / examples
    return math.sqrt(share * (1 - share) / examples)


def _sent(run: Run) -> float:
    """Return the bytes of a run's messages: as counted, else its parameters as float32."""
    traffic = run.summary["traffic"]
    if "bytes_down" in traffic and "bytes_up" in traffic:
        return float(traffic["bytes_down"] + traffic["bytes_up"])
    return 4.0 * float(traffic["parameters_both_ways"])
