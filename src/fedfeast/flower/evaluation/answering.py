"""The client's side of an evaluation: sums over its own examples for the networks that it affords, and no example."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord, RecordDict
from torch import Tensor

from fedfeast.data import Normalisation
from fedfeast.data.tasks import task_named
from fedfeast.engines.devices import choose_device
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import EvaluatingClient, Held
from fedfeast.evaluation.by_clients import norm_layers
from fedfeast.federation import Deployed, Method, OperatingPoint
from fedfeast.flower.messages import EvaluationOrder, Unreadable, to_json
from fedfeast.flower.node import Node
from fedfeast.flower.wire import from_array, to_array, unpack_slice, wire_dtype
from fedfeast.networks import Network
from fedfeast.networks.normalisation import Statistics
from fedfeast.recipes.recipe import Recipe
from fedfeast.routing import LeadingSlices
from fedfeast.runs.keeping_back import blank_inputs


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a node evaluates with."""

    recipe: Recipe
    method: Method
    normalisation: Normalisation | None
    node: Node

    def answer(self, order: EvaluationOrder, content: RecordDict) -> RecordDict:
        """Return the asked sums of every network, unless the node's own terms forbid it."""
        self._refuse_foreign_orders(order)
        points = self.method.operating_points()
        chosen = [points[place] for place in order.points]
        device = choose_device(self.recipe.engine.device)
        dtype = torch.float64 if self.recipe.engine.precision == "float64" else torch.float32
        slices = slice_of(self.method.network, chosen)
        for name in ("weights", *(["statistics"] if order.with_statistics else [])):
            if "values" not in content.array_records.get(name, {}):
                raise Unreadable(f"no record {name!r}")
        wire = wire_dtype(self.recipe.fleet.wire, dtype)
        received = unpack_slice(slices, content.array_records["weights"], wire, dtype)
        if not bool(torch.isfinite(received).all()):
            raise Unreadable("the received weights are not finite: nothing is evaluated with them")
        flat = self.method.network.layout.zeros(dtype)
        slices.scatter_(flat, received)
        deployed = [self.method.deploy(flat.to(device), point) for point in chosen]
        node = self.node
        training, kept_back = (Held.all_of(examples.to(device)) for examples in (node.examples, node.kept_back))
        client = EvaluatingClient(node.name, node.budget_macs, training, kept_back)
        if order.what == "statistics":
            return self._sum_statistics(client, deployed)
        given = from_array(content.array_records["statistics"]["values"]) if order.with_statistics else None
        return self._sum_totals(client, deployed, given)

    def _refuse_foreign_orders(self, order: EvaluationOrder) -> None:
        if self.recipe.evaluation.by != "clients":
            raise InvalidInput("the server asks for an evaluation, and its recipe says that it evaluates by itself.")
        if self.recipe.privacy.clip_norm is not None:
            raise InvalidInput("the server's privacy covers updates alone: counts would be told without noise.")
        points = self.method.operating_points()
        if any(place >= len(points) for place in order.points):
            raise Unreadable(f"the order names network {max(order.points)} of {len(points)}")
        if any(points[place].price > self.node.budget_macs for place in order.points):
            raise InvalidInput(f"the server asks for networks beyond the budget of {self.node.budget_macs:.0f} MACs.")

    def _sum_statistics(self, client: EvaluatingClient, networks: Sequence[Deployed]) -> RecordDict:
        sums = [client.statistics_sums(one, self.normalisation) for one in networks]
        values = [both.flatten() for one in sums for both in one.by_layer.values()]
        report = {"examples": sums[0].examples}
        return RecordDict({"report": to_json(report), "sums": pack_values(values)})

    def _sum_totals(self, client: EvaluatingClient, networks: Sequence[Deployed], given: Tensor | None) -> RecordDict:
        task = task_named(self.recipe.data.facts.task)
        blank, totals = blank_inputs(self.recipe.data.facts, networks[0].flat.device), []
        for one in networks:
            statistics: Statistics = {}
            if given is not None:
                statistics, given = take_statistics(norm_layers(one, blank), given.to(one.flat))
            totals.append(client.totals(one, statistics, self.normalisation, task).tolist())
        return RecordDict({"report": to_json({"examples": len(client.kept_back), "totals": totals})})


def slice_of(network: Network, points: Sequence[OperatingPoint]) -> LeadingSlices:
    """Return the slice that holds all of these networks and nothing else; both sides compute it."""
    held: dict[str, tuple[int, ...]] = {}
    for point in points:
        for name, shape in network.shapes(point.architecture).items():
            held[name] = tuple(map(max, held.get(name, shape), shape))
    return LeadingSlices.of(network.layout, {name: held[name] for name in network.layout.shapes if name in held})


def pack_values(parts: Sequence[Tensor]) -> ArrayRecord:
    """Return tensors as one array: every array costs requests of its own."""
    values = torch.cat([part.flatten() for part in parts]) if parts else torch.empty(0, dtype=torch.float64)
    return ArrayRecord({"values": to_array(values)})


def take_statistics(layers: dict[str, int], values: Tensor) -> tuple[Statistics, Tensor]:
    """Return one network's statistics from the front of what was sent, and the rest."""
    found = {}
    for layer, channels in layers.items():
        if len(values) < 2 * channels:
            raise Unreadable("the received statistics are too short")
        found[layer], values = (values[:channels], values[channels : 2 * channels]), values[2 * channels :]
    return found, values
