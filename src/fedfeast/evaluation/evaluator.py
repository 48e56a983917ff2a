"""Operating points measured on examples, as sums that add up over clients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfeast.data import Examples, Normalisation
from fedfeast.data.tasks import CLASSIFICATION, Metric, Task
from fedfeast.evaluation.curve import Curve, CurvePoint
from fedfeast.evaluation.passes.example_totals import BatchLimit, measure_totals, start_totals
from fedfeast.evaluation.passes.folded import is_exact, layers_by
from fedfeast.evaluation.passes.recalibration import recalibrate_group
from fedfeast.evaluation.passes.shared_prefixes import PrefixGroup, group_alike
from fedfeast.federation import Deployed, Method, OperatingPoint
from fedfeast.networks.normalisation import ByStatistics, Statistics

OnPoint = Callable[[OperatingPoint], None]


class Cost(NamedTuple):
    """A measured network and what it costs."""

    name: str
    macs: int
    parameters: int
    listed_price: int | None = None  # in MACs, where its cache has prices


@dataclass(frozen=True, eq=False)
class ClientIndex:
    """Whose examples they are."""

    names: tuple[str, ...]
    of_example: NDArray[np.int64]  # (examples,) positions in names


@dataclass(frozen=True, eq=False)
class Measured:
    """What networks came to on one set of examples: sums by client, from which every figure follows."""

    task: Task
    metric: Metric
    costs: tuple[Cost, ...]  # least price first
    totals: Tensor  # (points, clients, sums) in float64; one client where nobody knows whose the examples are
    clients: tuple[str, ...] = ()  # their names, where they are known
    # Which examples each network has right, (points, examples), where it is classes and nobody's examples.
    right: NDArray[np.bool_] | None = None
    # Of each network by name, where clients gave the sums for them; and what is to be said of the evaluation.
    statistics: Mapping[str, Statistics] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def curve(self) -> Curve:
        """The curve over all examples; a network that nobody measured is no point of it."""
        counted = [place for place in range(len(self.costs)) if bool(self._present(place).any())]
        if not counted:
            return Curve((), self.metric, notes=self.notes)
        unserved = self.task.without_network(self.totals[counted[0]].sum(dim=0))[self.metric.name]
        return Curve(tuple(map(self._point, counted)), self.metric, unserved, self.notes)

    @property
    def client_values(self) -> NDArray[np.float64]:
        """The metric by network and client, (points, clients); not a number where a client measured nothing."""
        values = np.full(self.totals.shape[:2], np.nan)
        for place in range(len(self.costs)):
            for client in self._present(place).nonzero().flatten().tolist():
                values[place, client] = self._value(self.totals[place, client])
        return values

    def summary(self) -> dict[str, Any]:
        """Return the measured set for a run's summary."""
        return {"clients": len(self.clients) or None, "curve": self.curve.rows()}

    def _point(self, place: int) -> CurvePoint:
        figures = self.task.figures(self.totals[place].sum(dim=0))
        name, macs, parameters, price = self.costs[place]
        value, error = figures[self.metric.name], self._standard_error(place)
        return CurvePoint(name, macs, parameters, value, figures, error, price, self._examples(place))

    def _examples(self, place: int) -> int | None:
        """Return how many examples a share of right ones is of; those of known clients are not independent."""
        if self.clients or self.task.name != CLASSIFICATION.name:
            return None
        _, count = self.totals[place].sum(dim=0)
        return round(float(count))

    def _standard_error(self, place: int) -> float | None:
        """Return the standard error of the value over clients, each left out in turn."""
        # Choice: the jackknife holds for any metric and for clients of any size; for means over clients of equal size
        # it is the usual one (024).
        sums = self.totals[place][self._present(place)]
        if len(self.clients) < 2 or len(sums) < 2:
            return None
        left = np.array([self._value(rest) for rest in sums.sum(dim=0) - sums])
        return float(np.sqrt((len(left) - 1) * np.mean((left - left.mean()) ** 2)))

    def _value(self, sums: Tensor) -> float:
        return self.task.figures(sums)[self.metric.name]

    def _present(self, place: int) -> Tensor:
        return (self.totals[place] != 0).any(dim=1)


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Measures operating points: recalibrates on one set of server-held examples, tests on another."""

    calibration: Examples
    test: Examples
    normalisation: Normalisation | None
    task: Task = CLASSIFICATION
    clients: ClientIndex | None = None  # of the test examples
    scored_by: Metric | None = None  # without it the task's first metric
    limit: BatchLimit = field(default_factory=BatchLimit)
    calibration_batch: int | None = None  # examples a batch in recalibration; without it as equal as can be

    @property
    def metric(self) -> Metric:
        """The metric of curves and scores."""
        return self.scored_by or self.task.metric

    def better(self, score: float, than: float) -> bool:
        """Return whether a score is better than another."""
        return self.metric.merit(score) > self.metric.merit(than)

    def figures(self, deployed: Deployed) -> dict[str, float]:
        """Return every metric of the recalibrated network on all test examples."""
        return self.task.figures(self.totals(deployed, self.recalibrate(deployed)).sum(dim=0))

    def curve(
        self, method: Method, flat: Tensor, points: Sequence[OperatingPoint], on_point: OnPoint = lambda point: None
    ) -> Curve:
        """Measure every given operating point of the global vector; on_point is told before each."""
        return self.measure(method, flat, points, on_point).curve

    def measure(
        self, method: Method, flat: Tensor, points: Sequence[OperatingPoint], on_point: OnPoint = lambda point: None
    ) -> Measured:
        """Measure every given operating point, client by client where the clients are known."""
        return measure_sets({"": self}, method, flat, points, on_point)[""]

    def recalibrate(self, deployed: Deployed) -> Statistics:
        """Return the statistics that the network is served with."""
        (statistics,) = self.recalibrate_group(PrefixGroup.of((deployed,)))
        return statistics

    def recalibrate_group(self, group: PrefixGroup) -> list[Statistics]:
        """Return the statistics that each network is served with."""
        return recalibrate_group(group, self.calibration, self.normalisation, self.calibration_batch)

    def totals(self, deployed: Deployed, statistics: Statistics) -> Tensor:
        """Return the sums by client, (clients, sums); all test examples as one where nobody knows whose they are."""
        return self.by_client(self.totals_by_example(deployed, statistics))

    def totals_by_example(self, deployed: Deployed, statistics: Statistics) -> Tensor:
        """Return the sums by example, (examples, sums)."""
        return measure_totals(deployed, statistics, self.test, self.normalisation, self.task, self.limit).cpu()

    def start_totals(
        self,
        group: PrefixGroup,
        layers: Sequence[ByStatistics],
        on_batch: Callable[[int], None] = lambda examples: None,
    ) -> list[Tensor]:
        """Return every network's sums by example; a device may still be at work on them."""
        return start_totals(group, layers, self.test, self.normalisation, self.task, self.limit, on_batch)

    def by_client(self, by_example: Tensor) -> Tensor:
        """Add the examples' sums up by client."""
        if self.clients is None:
            return by_example.sum(dim=0, keepdim=True)
        sums = by_example.new_zeros(len(self.clients.names), by_example.shape[1])
        return sums.index_add_(0, torch.from_numpy(self.clients.of_example), by_example)

    def right_examples(self, by_example: Sequence[Tensor]) -> NDArray[np.bool_] | None:
        """Return which examples each network has right; None where they have owners, or right is not all there is."""
        if self.clients is not None or self.task.name != CLASSIFICATION.name or not by_example:
            return None
        return np.stack([sums[:, 0].numpy() > 0 for sums in by_example])


class _Started(NamedTuple):
    """A network of which a set's sums by example may still be in the making."""

    point: OperatingPoint
    layers_are_exact: bool
    statistics: Statistics
    by_example: Tensor

    def totals(self, evaluator: Evaluator, method: Method, flat: Tensor) -> Tensor:
        """Wait for the sums by example; what float16 could not hold is measured again in full."""
        by_example = self.by_example.cpu()
        if not self.layers_are_exact and bool(by_example.isnan().any()):
            return evaluator.totals_by_example(method.deploy(flat, self.point), self.statistics)
        return by_example


def measure_sets(
    sets: Mapping[str, Evaluator],
    method: Method,
    flat: Tensor,
    points: Sequence[OperatingPoint],
    on_point: OnPoint = lambda point: None,
    known: Mapping[str, Statistics] | None = None,
) -> dict[str, Measured]:
    """Measure every operating point on several sets of examples, each network taken out once.

    Networks whose statistics are known, by name, are not recalibrated.
    """
    costs = dict[OperatingPoint, Cost]()
    started: dict[str, dict[OperatingPoint, _Started]] = {name: {} for name in sets}
    num_examples = sum(len(evaluator.test) for evaluator in sets.values())
    for alike in group_alike(points) if known is None else [[point] for point in points]:
        group = PrefixGroup.of([method.deploy(flat, point) for point in alike])
        for point, one in zip(alike, group.networks, strict=True):
            costs[point] = Cost(point.name, one.macs, one.parameters, point.listed_price)
        tell = _Teller(alike, num_examples, on_point).tell
        tell(0)
        layers: dict[int, list[ByStatistics]] = {}  # sets may share their calibration examples
        for name, evaluator in sets.items():
            shared = id(evaluator.calibration)
            if shared not in layers:
                given = None if known is None else known.get(alike[0].name)
                statistics = evaluator.recalibrate_group(group) if given is None else [given]
                layers[shared] = list(map(layers_by, group.networks, statistics))
            used = layers[shared]
            for point, own, by_example in zip(alike, used, evaluator.start_totals(group, used, tell), strict=True):
                started[name][point] = _Started(point, is_exact(own), own.statistics, by_example)
    # A device that is asked for a result stands still before and after: it is asked once all points are given to it.
    return {
        name: _gather(
            evaluator,
            [costs[point] for point in points],
            [started[name][point].totals(evaluator, method, flat) for point in points],
        )
        for name, evaluator in sets.items()
    }


@dataclass(eq=False)
class _Teller:
    """Tells of a group's points in turn, as its examples go through all of its networks at once."""

    points: Sequence[OperatingPoint]
    num_examples: int  # that will go through
    on_point: OnPoint
    gone_through: int = 0
    told: int = 0

    def tell(self, examples: int) -> None:
        """Tell of the points whose share of the work has begun, now that more examples went through."""
        self.gone_through += examples
        begun = 1 + len(self.points) * self.gone_through // max(self.num_examples, 1)
        for point in self.points[self.told : begun]:
            self.on_point(point)
            self.told += 1


def _gather(evaluator: Evaluator, costs: Sequence[Cost], by_example: Sequence[Tensor]) -> Measured:
    """Return what networks came to, given their sums by example."""
    none = torch.zeros(0, 0, 0, dtype=torch.float64)
    return Measured(
        evaluator.task,
        evaluator.metric,
        tuple(costs),
        torch.stack(list(map(evaluator.by_client, by_example))) if by_example else none,
        evaluator.clients.names if evaluator.clients is not None else (),
        evaluator.right_examples(by_example),
    )
