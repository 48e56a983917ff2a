"""Evaluation without server data: clients measure the networks that they afford on examples that they keep back."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from fedfeast.data import Examples, Normalisation
from fedfeast.data.tasks import Metric, Task
from fedfeast.evaluation.curve import Curve
from fedfeast.evaluation.evaluator import Cost, Measured, OnPoint
from fedfeast.evaluation.passes.example_totals import BatchLimit, measure_totals
from fedfeast.evaluation.passes.recalibration import StatisticsSums
from fedfeast.federation import Deployed, Method, OperatingPoint
from fedfeast.networks.normalisation import RecordingByBatch, Statistics

KEPT_BACK = "examples that clients kept back"  # where a summary's curve is from, without a test set
# Choice: statistics need few examples, and a pass over all of a client's would cost as much as training (019).
MOST_CALIBRATION = 250  # training examples of a client, that its sums for the served statistics come from


class Validation(Protocol):
    """By what rounds are judged: the server's own examples, or its clients."""

    @property
    def metric(self) -> Metric:
        """The metric of curves and scores."""
        ...

    def better(self, score: float, than: float) -> bool:
        """Return whether a score is better than another."""
        ...

    def measure(
        self, method: Method, flat: Tensor, points: Sequence[OperatingPoint], on_point: OnPoint = lambda point: None
    ) -> Measured:
        """Measure operating points of the global vector; on_point is told before each."""
        ...

    def curve(
        self, method: Method, flat: Tensor, points: Sequence[OperatingPoint], on_point: OnPoint = lambda point: None
    ) -> Curve:
        """Return the measured curve."""
        ...


@dataclass(frozen=True, eq=False)
class ClientsValidation(ABC):
    """Evaluation by clients, simulated or over a fleet."""

    task: Task
    scored_by: Metric | None  # without it the task's first metric
    blank: Tensor  # two inputs of zeros: enough to see which layers have served statistics

    @property
    def metric(self) -> Metric:
        """The metric of curves and scores."""
        return self.scored_by or self.task.metric

    def better(self, score: float, than: float) -> bool:
        """Return whether a score is better than another."""
        return self.metric.merit(score) > self.metric.merit(than)

    def curve(
        self, method: Method, flat: Tensor, points: Sequence[OperatingPoint], on_point: OnPoint = lambda point: None
    ) -> Curve:
        """Return the measured curve; a network that nobody evaluated is no point of it."""
        return self.measure(method, flat, points, on_point).curve

    @property
    @abstractmethod
    def asks_nobody(self) -> bool:
        """Whether there is no client to ask, as in a fleet's run that is opened without its fleet."""

    @abstractmethod
    def measure(
        self, method: Method, flat: Tensor, points: Sequence[OperatingPoint], on_point: OnPoint = lambda point: None
    ) -> Measured:
        """Ask the clients for their sums; the measured networks have the statistics that they were measured with."""


@dataclass(frozen=True, eq=False)
class Held:
    """Some examples of a pool, taken out of it when they are needed."""

    pool: Examples
    places: Tensor

    @classmethod
    def all_of(cls, examples: Examples) -> "Held":
        """Return all of some examples."""
        return cls(examples, torch.arange(len(examples)))

    def __len__(self) -> int:
        return len(self.places)

    def evenly(self, most: int) -> "Held":
        """Return at most so many, evenly out of all."""
        if len(self) <= most:
            return self
        return Held(self.pool, self.places[torch.arange(most) * len(self) // most])

    def examples(self) -> Examples:
        """Take them out."""
        return self.pool.select(self.places.to(self.pool.labels.device))


@dataclass(frozen=True, eq=False)
class EvaluatingClient:
    """A client with its own examples: those it trains on, and those it keeps back."""

    name: str
    budget_macs: float
    training: Held
    kept_back: Held

    def statistics_sums(self, deployed: Deployed, normalisation: Normalisation | None) -> StatisticsSums:
        """Return its sums for a network's served statistics, over some of its training examples."""
        return StatisticsSums.of(deployed, self.training.evenly(MOST_CALIBRATION).examples(), normalisation)

    def totals(
        self, deployed: Deployed, statistics: Statistics, normalisation: Normalisation | None, task: Task
    ) -> Tensor:
        """Return the task's sums over the examples that it keeps back."""
        return measure_totals(deployed, statistics, self.kept_back.examples(), normalisation, task).sum(dim=0).cpu()


@dataclass(frozen=True, eq=False)
class ClientEvaluator(ClientsValidation):
    """Simulated clients: what a fleet would say, computed here."""

    clients: Sequence[EvaluatingClient]
    normalisation: Normalisation | None
    limit: BatchLimit = field(default_factory=BatchLimit)

    @property
    def asks_nobody(self) -> bool:
        """Whether there is no client to ask."""
        return not self.clients

    def measure(
        self, method: Method, flat: Tensor, points: Sequence[OperatingPoint], on_point: OnPoint = lambda point: None
    ) -> Measured:
        """Measure each point on the examples of the clients that afford it."""
        said = SumsByClient(self, method, [client.name for client in self.clients], points)
        for place, point in enumerate(points):
            on_point(point)
            deployed = method.deploy(flat, point)
            able = [number for number, one in enumerate(self.clients) if one.budget_macs >= point.price]
            sums = StatisticsSums({}, 0)
            layers = norm_layers(deployed, self.blank)
            for number in able if layers else ():
                sums = sums.plus(self.clients[number].statistics_sums(deployed, self.normalisation))
            if layers and not sums.examples:
                continue
            statistics = said.put_statistics(place, sums, deployed.flat.dtype)
            for number, totals in self._totals(deployed, statistics, able).items():
                said.put_totals(place, number, totals)
        return said.measured(flat)

    def _totals(self, deployed: Deployed, statistics: Statistics, able: Sequence[int]) -> dict[int, Tensor]:
        """Return each client's sums; under given statistics all clients' examples may go through at once."""
        held = {number: self.clients[number].kept_back for number in able if len(self.clients[number].kept_back)}
        if not held:
            return {}
        parts = [one.examples() for one in held.values()]
        together = Examples(torch.cat([one.inputs for one in parts]), torch.cat([one.labels for one in parts]))
        by_example = measure_totals(deployed, statistics, together, self.normalisation, self.task, self.limit).cpu()
        split = torch.split_with_sizes(by_example, [len(one) for one in parts])
        return {number: sums.sum(dim=0) for number, sums in zip(held, split, strict=True)}


class SumsByClient:
    """What clients have said so far of some networks."""

    def __init__(
        self, asking: ClientsValidation, method: Method, clients: Sequence[str], points: Sequence[OperatingPoint]
    ) -> None:
        self._asking, self._method, self._clients, self._points = asking, method, tuple(clients), points
        self._totals: dict[tuple[int, int], Tensor] = {}
        self.statistics: dict[str, Statistics] = {}  # by the network's name

    def put_statistics(self, place: int, sums: StatisticsSums, dtype: torch.dtype) -> Statistics:
        """Keep the statistics that all clients' sums come to."""
        merged = self.statistics[self._points[place].name] = sums.statistics(dtype)
        return merged

    def put_totals(self, place: int, client: int, totals: Tensor) -> None:
        """Keep one client's sums of one network."""
        self._totals[place, client] = totals

    def measured(self, flat: Tensor, notes: Mapping[str, Any] | None = None) -> Measured:
        """Return everything; what nobody evaluated is noted."""
        width = next((len(totals) for totals in self._totals.values()), 0)
        table = torch.zeros(len(self._points), len(self._clients), width, dtype=torch.float64)
        for (place, client), totals in self._totals.items():
            table[place, client] = totals
        method, points = self._method, self._points
        costs: Sequence[OperatingPoint | Deployed] = points
        if method.cost_follows_weights:
            costs = [method.deploy(flat, point) for point in points]
        evaluated = {place for place, _ in self._totals}
        missing = [point.name for place, point in enumerate(self._points) if place not in evaluated]
        about = {**(notes or {}), **({"not_evaluated": missing} if missing else {})}
        return Measured(
            self._asking.task,
            self._asking.metric,
            tuple(
                Cost(point.name, one.macs, one.parameters, point.listed_price)
                for point, one in zip(points, costs, strict=True)
            ),
            table,
            self._clients,
            statistics=self.statistics,
            notes={"evaluation": about} if about else {},
        )


@torch.no_grad()
def norm_layers(deployed: Deployed, blank: Tensor) -> dict[str, int]:
    """Return the layers with served statistics and their channels, in the order of the pass; maybe none."""
    recording, flat = RecordingByBatch(), deployed.flat
    deployed(blank.to(flat.device, flat.dtype if blank.is_floating_point() else blank.dtype), recording)
    return {name: len(mean) for name, (mean, _) in recording.statistics(torch.float64).items()}
