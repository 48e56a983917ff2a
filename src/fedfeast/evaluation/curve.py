"""The curve of a metric over MACs of a trained federation, and what its clients get from it."""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedfeast.data.tasks import ACCURACY, Metric
from fedfeast.errors import InvalidInput
from fedfeast.federation import OperatingPoint
from fedfeast.frames import frame_of

if TYPE_CHECKING:
    from pandas import DataFrame

# What a client gets: the largest point that it affords, or of all that it affords the one with the best value.
Serving = Literal["largest", "best"]
SMALL_TEST_SET = 5_000  # examples; the accuracy on fewer is shown with its uncertainty
NORMAL_95 = 1.959964  # standard deviations to either side that hold 95 % of a normal distribution


@dataclass(frozen=True)
class CurvePoint:
    """One measured operating point."""

    name: str
    macs: int
    parameters: int
    value: float  # of the metric that scores
    figures: Mapping[str, float] = field(default_factory=dict, hash=False)  # all metrics of the task, where measured
    standard_error: float | None = None  # of the value over clients, where the examples' clients are known
    listed_price: int | None = None  # in MACs, where its cache has prices
    examples: int | None = None  # of which the value is the share that is right, where it is such a share

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> "CurvePoint":
        """Return the point of a file's row."""
        return cls(
            row["name"],
            row["macs"],
            row["parameters"],
            row["value"] if "value" in row else row["accuracy"],  # all that the first release wrote
            row["figures"] if "figures" in row else {"accuracy": row["accuracy"]},
            row.get("standard_error"),
            row.get("price"),
            row.get("examples"),
        )

    @property
    def interval(self) -> tuple[float, float] | None:
        """Within which the accuracy lies with 95 % certainty, where the test set is small; Wilson's for a binomial."""
        if self.examples is None or self.examples >= SMALL_TEST_SET or not 0 <= self.value <= 1:
            return None  # a damaged file may hold any value
        # Unlike the normal interval it stays within 0 and 1, and has a length even where all examples are right.
        square = NORMAL_95**2 / self.examples
        middle = (self.value + square / 2) / (1 + square)
        reach = math.sqrt(square * (self.value * (1 - self.value) + square / 4)) / (1 + square)
        return max(middle - reach, 0.0), min(middle + reach, 1.0)

    @property
    def price(self) -> int:
        """The MACs that budgets are compared with: its own, unless its cache says otherwise."""
        return self.macs if self.listed_price is None else self.listed_price

    @property
    def drawn_at(self) -> int:
        """Where it stands on an axis of costs: at its price, or at its own MACs where everybody is given it."""
        return self.price or self.macs

    @property
    def accuracy(self) -> float:
        """The share of examples that are right, 0 to 1; not every task has it."""
        if self.figures and "accuracy" not in self.figures:
            raise InvalidInput(f"{self.name} has no accuracy: its figures are {', '.join(self.figures)}.")
        return self.figures.get("accuracy", self.value)


@dataclass(frozen=True)
class Curve:
    """Measured operating points, least price first, and the metric of their values."""

    points: tuple[CurvePoint, ...]
    metric: Metric = ACCURACY
    unserved: float = 0.0  # what a client counts for that no point fits: nothing is right, or a blind guess
    notes: Mapping[str, Any] = field(default_factory=dict, compare=False, hash=False)  # about the measuring

    @classmethod
    def read(cls, rows: Iterable[Mapping[str, Any]], facts: Mapping[str, Any]) -> "Curve":
        """Return the curve of a file's rows; the facts of a summary name the metric, and without it it is accuracy."""
        return cls(tuple(map(CurvePoint.read, rows)), metric_of(facts), facts.get("unserved_value", 0.0))

    def rows(self) -> list[dict[str, Any]]:
        """Return the points for a file: the accuracy by its name where there is one, the value and all figures."""
        return [
            {
                **_costs(point),
                **({"accuracy": self._figures(point)["accuracy"]} if "accuracy" in self._figures(point) else {}),
                "value": point.value,
                "figures": self._figures(point),
                **({} if point.standard_error is None else {"standard_error": point.standard_error}),
                **({} if point.examples is None else {"examples": point.examples}),
            }
            for point in self.points
        ]

    def table(self) -> list[dict[str, Any]]:
        """Return the points as rows of a table, a column for every figure."""
        return [
            {
                **_costs(point),
                **self._figures(point),
                **({} if point.standard_error is None else {"standard_error": point.standard_error}),
            }
            for point in self.points
        ]

    def to_frame(self) -> "DataFrame":
        """Return the table as a pandas DataFrame by name."""
        return frame_of(self.table(), "name", without="curve.table()")

    def facts(self) -> dict[str, Any]:
        """Return what a file must say beside the rows."""
        return {"metric": self.metric.facts(), "unserved_value": self.unserved}

    def serve(self, budget_macs: float) -> CurvePoint | None:
        """Return the largest point the budget affords, or None."""
        affordable = bisect_right(self.points, budget_macs, key=lambda point: point.price)
        return self.points[affordable - 1] if affordable else None

    @property
    def best(self) -> CurvePoint:
        """The point with the best value, whatever it costs."""
        return max(self.points, key=lambda point: self.metric.merit(point.value))

    @property
    def is_priced(self) -> bool:
        """Whether budgets are compared with other MACs than the points have."""
        return any(point.listed_price is not None for point in self.points)

    def client_values(self, budgets_macs: np.ndarray, serving: Serving = "largest") -> np.ndarray:
        """Return what each client gets: the value of the largest point it affords, or the best of those."""
        values = np.array([point.value for point in self.points])
        if serving == "best" and self.points:
            sign = self.metric.merit(1.0)
            values = sign * np.maximum.accumulate(sign * values)
        # Choice: a client that nothing fits counts, so that a method cannot win by leaving clients out (008, 024).
        values = np.concatenate([[self.unserved], values])
        return np.asarray(values[self.count_affordable(budgets_macs)])

    def count_affordable(self, budgets_macs: np.ndarray) -> np.ndarray:
        """Return how many points each budget affords; the last of them serves it."""
        return np.asarray(np.searchsorted([point.price for point in self.points], budgets_macs, side="right"))

    def population_score(self, budgets_macs: np.ndarray, serving: Serving = "largest") -> float:
        """Return the mean of the metric over clients, each with the largest point it affords, or the best of those."""
        return float(self.client_values(budgets_macs, serving).mean())

    def population_scores(self, budgets_macs: np.ndarray) -> dict[str, float]:
        """Return both population scores for a file: by the largest affordable point, and by the best one."""
        return {
            "population_score": self.population_score(budgets_macs),
            "population_score_best": self.population_score(budgets_macs, "best"),
        }

    def served_share(self, budgets_macs: np.ndarray) -> float:
        """Return the share of clients that any point fits."""
        return float(np.mean(budgets_macs >= self.points[0].price))

    def _figures(self, point: CurvePoint) -> dict[str, float]:
        return dict(point.figures) or {self.metric.name: point.value}


def metric_of(facts: Mapping[str, Any]) -> Metric:
    """Return the metric that a summary names; those of the first release name none, and theirs is accuracy."""
    return Metric.read(facts["metric"]) if "metric" in facts else ACCURACY


def _costs(point: CurvePoint) -> dict[str, Any]:
    priced = {} if point.listed_price is None else {"price": point.listed_price}
    return {"name": point.name, "macs": point.macs, "parameters": point.parameters, **priced}


@dataclass(frozen=True)
class ClientWins:
    """On how many clients one curve serves better than another."""

    wins: int
    ties: int
    losses: int


def count_client_wins(curve: Curve, other: Curve, budgets_macs: np.ndarray) -> ClientWins:
    """Compare two curves of one metric client by client under largest-affordable serving."""
    if curve.metric.name != other.metric.name:
        raise InvalidInput(
            f"one curve is of {curve.metric.name} and the other of {other.metric.name}: "
            "client wins need the same metric."
        )
    ours, theirs = (one.metric.merit(1.0) * one.client_values(budgets_macs) for one in (curve, other))
    return ClientWins(int((ours > theirs).sum()), int((ours == theirs).sum()), int((ours < theirs).sum()))


def served_points(points: Sequence[OperatingPoint], budgets_macs: np.ndarray) -> tuple[OperatingPoint, ...]:
    """Return the points that largest-affordable serving hands to at least one client."""
    positions = np.searchsorted([point.price for point in points], budgets_macs, side="right")
    return tuple(points[position - 1] for position in np.unique(positions) if position > 0)
