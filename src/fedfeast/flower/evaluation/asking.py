"""The server's side of an evaluation: every client that is there is asked for sums over what it keeps back."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from flwr.app import Message, RecordDict
from torch import Tensor

from fedfeast.data import DatasetFacts
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import ClientsValidation, Measured, StatisticsSums
from fedfeast.evaluation.by_clients import MOST_CALIBRATION, SumsByClient, norm_layers
from fedfeast.evaluation.evaluator import OnPoint
from fedfeast.evaluation.told_totals import find_totals_fault
from fedfeast.federation import Client, Method, OperatingPoint, TooFewAnswers
from fedfeast.flower.evaluation.answering import pack_values, slice_of
from fedfeast.flower.fleet import Fleet, error_of
from fedfeast.flower.messages import StatisticsReport, TotalsReport, Unreadable, from_json, one_line, to_json
from fedfeast.flower.wire import from_array, pack_slice, wire_dtype

LOG = logging.getLogger("fedfeast.fleet")
ATTEMPTS = 3  # at an evaluation that too few answer
LARGEST_FEATURE = 1e12  # that a norm layer may be said to see


@dataclass
class _Asked:
    """What goes out to whom in one pass, and what has come back."""

    what: str
    places: Mapping[int, list[int]]  # client -> the networks it is asked for
    under_way: dict[str, Client] = field(default_factory=dict)  # by message
    answers: dict[int, Any] = field(default_factory=dict)  # by client
    failed: dict[str, str] = field(default_factory=dict)  # client -> why it sent no answer
    refused: dict[str, str] = field(default_factory=dict)  # client -> why its answer does not count


@dataclass(frozen=True, eq=False)
class FleetEvaluator(ClientsValidation):
    """Evaluation by the nodes of a fleet; the server holds no example of it."""

    fleet: Fleet
    facts: DatasetFacts
    dtype: torch.dtype
    client_share: float  # of its examples that a client keeps back

    @property
    def asks_nobody(self) -> bool:
        """Whether there is no client to ask."""
        return False

    def measure(
        self, method: Method, flat: Tensor, points: Sequence[OperatingPoint], on_point: OnPoint = lambda point: None
    ) -> Measured:
        """Ask all clients that are there; again where fewer answer than a round needs."""
        for _ in range(ATTEMPTS):
            try:
                measured = self._ask(method, flat.cpu(), points)
            except TooFewAnswers:
                self.fleet.gather(self.fleet.round_index)
                continue
            for point in points:
                on_point(point)
            return measured
        raise InvalidInput(
            f"no evaluation after {ATTEMPTS} attempts, since too few clients answered (fleet.log says why): mend them, "
            "or set evaluation.by=server, then start the run again."
        )

    def _ask(self, method: Method, flat: Tensor, points: Sequence[OperatingPoint]) -> Measured:
        clients = [client for client in self.fleet.present_clients() if client.budget_macs >= points[0].price]
        said = SumsByClient(self, method, [client.name for client in clients], points)
        layers = [norm_layers(method.deploy(flat, point), self.blank) for point in points]
        asking = _Conversation(self, method, flat, points, clients)
        affordable = {
            client.index: [place for place, point in enumerate(points) if point.price <= client.budget_macs]
            for client in clients
        }
        first = _Asked("statistics", affordable if any(layers) else {})
        asking.hold(first, layers)
        for place in range(len(points)):
            sums = StatisticsSums({}, 0)
            for client in clients:
                told = first.answers.get(client.index, {}).get(place)
                sums = sums if told is None else sums.plus(told)
            if sums.examples or not layers[place]:
                said.put_statistics(place, sums, self.dtype)
        able = {
            client.index: [place for place in affordable[client.index] if points[place].name in said.statistics]
            for client in clients
            if self.fleet.kept_back.get(client.name, 0) > 0
        }
        second = _Asked("totals", {client: places for client, places in able.items() if places})
        asking.hold(second, layers, [said.statistics.get(point.name, {}) for point in points])
        if len(second.answers) < max(1, min(self.fleet.settings.least_answers, len(second.places))):
            LOG.warning("the evaluation has %d answers and is tried again", len(second.answers))
            raise TooFewAnswers
        for number, client in enumerate(clients):
            for place, totals in second.answers.get(client.index, {}).items():
                said.put_totals(place, number, totals)
        notes: dict[str, Any] = {"answered": sorted(second.answers)}
        for name in ("failed", "refused"):
            if together := getattr(first, name) | getattr(second, name):
                notes[name] = together
        return said.measured(flat, notes)

    def most_kept_back(self, client: Client) -> int:
        """Return how many examples a client can keep back, given those that it says it trains on."""
        return int(client.num_examples * self.client_share / (1 - self.client_share)) + 1


class _Conversation:
    """One pass of an evaluation: orders go out, answers are checked as they arrive."""

    def __init__(
        self,
        asking: FleetEvaluator,
        method: Method,
        flat: Tensor,
        points: Sequence[OperatingPoint],
        clients: Sequence[Client],
    ) -> None:
        self._asking, self._fleet, self._method, self._flat = asking, asking.fleet, method, flat
        self._points, self._clients, self._nodes = points, clients, asking.fleet.nodes_by_name()
        self._wire = wire_dtype(asking.fleet.settings.wire, asking.dtype)
        self._numbers = {point: number for number, point in enumerate(method.operating_points())}
        self._terms = to_json(asking.fleet.terms.to_json())

    def hold(self, this: _Asked, layers: Sequence[Mapping[str, int]], statistics: Sequence[Any] | None = None) -> None:
        """Ask everybody; take in what comes back before the deadline."""
        for client in self._clients:
            if client.index in this.places:
                self._send(client, this, statistics)
        self._fleet.receive(this.under_way, lambda client, reply: self._take(client, reply, this, layers))
        for client in this.under_way.values():
            this.failed[client.name] = f"no answer within {self._fleet.settings.deadline_seconds:g} s"
        for name, reason in {**this.failed, **this.refused}.items():
            LOG.warning("the evaluation goes on without the %s of %s: %s", this.what, name, reason)

    def _send(self, client: Client, this: _Asked, statistics: Sequence[Any] | None) -> None:
        node, places = self._nodes.get(client.name), this.places[client.index]
        slices = slice_of(self._method.network, [self._points[place] for place in places])
        told = [statistics[place] for place in places] if statistics is not None else []
        values = [part for layers in told for both in layers.values() for part in both]
        order = {
            "round_index": self._fleet.round_index,
            "what": this.what,
            "points": [self._numbers[self._points[place]] for place in places],
            "with_statistics": bool(values),
        }
        content = RecordDict(
            {
                "terms": self._terms,
                "order": to_json(order),
                "weights": pack_slice(slices, slices.gather(self._flat), self._wire),
                **({"statistics": pack_values(values)} if values else {}),
            }
        )
        patience = 2 * self._fleet.settings.deadline_seconds
        send = self._fleet.transport.send
        pending = None if node is None else send(node, "evaluate", self._fleet.round_index, content, patience)
        if pending is None:
            this.failed[client.name] = "it cannot be reached"
        else:
            this.under_way[pending.message_id] = client

    def _take(self, client: Client, reply: Message, this: _Asked, layers: Sequence[Mapping[str, int]]) -> None:
        """Take an answer in, or note why it is missing or refused."""
        try:
            if reply.has_error():
                this.failed[client.name] = error_of(reply)
                return
            report = from_json(reply.content, "report")
            if "problem" in report:
                this.failed[client.name] = one_line(report["problem"])
                return
            places = this.places[client.index]
            if this.what == "statistics":
                wanted = {place: layers[place] for place in places}
                this.answers[client.index] = self._read_sums(client, reply, report, wanted)
            else:
                this.answers[client.index] = self._read_totals(client, report, places)
        except Unreadable as error:
            this.refused[client.name] = str(error)

    def _read_sums(
        self, client: Client, reply: Message, report: Mapping[str, Any], layers: Mapping[int, Mapping[str, int]]
    ) -> dict[int, StatisticsSums]:
        said = StatisticsReport.read(report, "report")
        if said.examples > min(client.num_examples, MOST_CALIBRATION):
            raise Unreadable(f"it sums over {said.examples} examples, of the {client.num_examples} that it has")
        if not said.examples:
            return {}
        records = reply.content.array_records
        array = records["sums"].get("values") if "sums" in records else None
        size = sum(2 * channels for one in layers.values() for channels in one.values())
        if array is None or len(array.data) != 8 * size or array.dtype != "float64":
            raise Unreadable(f"its sums are no {size} numbers in float64")
        values, found = from_array(array).flatten(), {}
        if not bool((values.abs() <= LARGEST_FEATURE * said.examples).all()):
            raise Unreadable("its sums are not finite or beyond all measure")
        for place, channels_of in layers.items():
            by_layer = {}
            for layer, channels in channels_of.items():
                by_layer[layer], values = values[: 2 * channels].reshape(2, channels), values[2 * channels :]
                mean, square = by_layer[layer] / said.examples
                if bool((square < mean**2 * (1 - 1e-6) - 1e-9).any()):
                    raise Unreadable(f"its sums cannot be: squares in {one_line(layer)} are below those of their mean")
            found[place] = StatisticsSums(by_layer, said.examples)
        return found

    def _read_totals(self, client: Client, report: Mapping[str, Any], places: Sequence[int]) -> dict[int, Tensor]:
        said = TotalsReport.read(report, "report")
        kept = min(self._fleet.kept_back[client.name], self._asking.most_kept_back(client))
        if said.examples > kept:
            raise Unreadable(f"it counts {said.examples} examples, and keeps back {kept}")
        if len(said.totals) != len(places) or len({len(sums) for sums in said.totals}) != 1:
            raise Unreadable(f"it has totals of {len(said.totals)} networks where {len(places)} were asked for")
        totals = torch.tensor(said.totals, dtype=torch.float64)
        fault = find_totals_fault(totals, said.examples, self._asking.facts)
        if fault is not None:
            raise Unreadable(fault)
        return dict(zip(places, totals, strict=True))
