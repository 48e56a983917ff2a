"""The client's side: says who it is when asked, trains the slice that it is sent, and evaluates it where asked to."""

from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from fedfeast.engines.devices import choose_device
from fedfeast.engines.eager import ClientSlot, LocalRound, add_up_losses, train_locally
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Method, privatise
from fedfeast.federation.wire.link import answer
from fedfeast.federation.wire.memory import ClientMemory, Kept
from fedfeast.flower.evaluation.answering import Evaluation
from fedfeast.flower.memory.node_memory import NeedsWhole, NodeMemory
from fedfeast.flower.messages import MOST_TERMS_BYTES, EvaluationOrder, Order, Unreadable, from_json, to_json
from fedfeast.flower.node import Node, read_node, require_consent
from fedfeast.flower.terms import Terms, read_terms, space_of
from fedfeast.flower.wire import (
    pack_arrays,
    pack_slice,
    unpack_arrays,
    unpack_assignment,
    unpack_slice,
    wire_dtype,
)
from fedfeast.machine import usable_cores
from fedfeast.recipes.building import build_method, build_preparation, build_privacy, build_sgd, build_wire
from fedfeast.recipes.recipe import Recipe
from fedfeast.version import VERSION


def introduce(message: Message, context: Context) -> Message:
    """Answer who this node is: name, budget, examples, classes, version and network, or what is wrong with it."""
    content: dict[str, Any] = {"name": str(context.node_config.get("name", ""))}
    try:
        node, _, method = _prepare(read_terms(message.content), context)
        content |= {
            "name": node.name,
            "budget_macs": node.budget_macs,
            "num_examples": len(node.examples),
            "kept_back": len(node.kept_back),
            "held_classes": node.held_classes if method.needs_held_classes else [],
            "space": space_of(method),
        }
    except (InvalidInput, Unreadable) as error:
        content["problem"] = str(error)
    content["version"] = VERSION
    return Message(RecordDict({"introduction": to_json(content)}), reply_to=message)


def train(message: Message, context: Context) -> Message:
    """Train the received slice on the node's examples and send it back."""
    try:
        records = _train(message.content, context)
    except (InvalidInput, Unreadable) as error:
        whole = {"needs_whole": True} if isinstance(error, NeedsWhole) else {}
        records = RecordDict({"report": to_json({"problem": str(error), **whole})})
    return Message(records, reply_to=message)


def _train(content: RecordDict, context: Context) -> RecordDict:
    terms, order = read_terms(content), Order.read(from_json(content, "order", MOST_TERMS_BYTES), "order")
    node, recipe, method = _prepare(terms, context)
    torch.set_num_threads(_threads(recipe, context))
    device = choose_device(recipe.engine.device)
    dtype = torch.float64 if recipe.engine.precision == "float64" else torch.float32
    assignment = unpack_assignment(order.assignment, _arrays(content, "assignment"), method.network.layout)
    slices, wire = assignment.slice_map, _OwnWire(recipe, node.name, order, terms, context)
    received = wire.receive(assignment, _arrays(content, "weights"), dtype)
    if not bool(torch.isfinite(received).all()):
        raise Unreadable("the received weights are not finite: nothing is trained from them")
    slot = ClientSlot(method, dtype, device, slices.layout.size)
    this = LocalRound(
        build_preparation(recipe, terms.normalisation, method),
        build_sgd(recipe, method),
        recipe.seed,
        order.round_index,
        order.learning_rate,
        dtype,
    )
    losses, num_steps = train_locally(method, assignment, received, node.examples.to(device), slot, this)
    report = {"num_examples": len(node.examples), "num_steps": num_steps, "losses": add_up_losses(losses)}
    returned, privacy = slot.weights.cpu(), build_privacy(recipe)
    if not bool(torch.isfinite(returned).all()):
        raise Unreadable("its training diverged (weights that are not finite), so nothing is sent")
    if privacy is not None:
        # The noise comes from the operating system, and losses are left out: they would be told without any.
        noisy = privatise(slices.pack(received), slices.pack(returned), privacy, np.random.default_rng())
        returned, report["losses"] = slices.unpack(noisy), {}
    weights = wire.send(assignment, received, returned)
    return RecordDict({"report": to_json({**report, **wire.said}), "weights": weights})


class _OwnWire:
    """This node's end of the wire in one round."""

    def __init__(self, recipe: Recipe, name: str, order: Order, terms: Terms, context: Context) -> None:
        self._recipe, self._order, self._wire = recipe, order, build_wire(recipe)
        self._memory: NodeMemory | None = None
        self._held: Kept | None = None
        if self._wire.feeds_back or self._wire.down_deltas:
            folder = context.node_config.get("state-folder")
            place = None if folder is None else str(folder)
            self._memory = NodeMemory.open(place, name, terms.recipe, order.round_index)
        self.said: dict[str, str] = {}  # of it in the report

    def receive(self, assignment: Assignment, record: ArrayRecord, dtype: torch.dtype) -> Tensor:
        """Return the vector that the node was sent."""
        slices = assignment.slice_map
        if self._wire.is_lossless:
            return unpack_slice(slices, record, wire_dtype(self._recipe.fleet.wire, dtype), dtype)
        arrived = unpack_arrays(slices, record, self._wire.downwards, dtype)
        if self._memory is not None and self._wire.down_deltas:
            arrived = self._memory.received(self._order, slices, arrived)
            self._held, self.said = Kept.of(slices, arrived), {"held_sha256": self._order.weights_sha256}
        return slices.unpack(arrived)

    def send(self, assignment: Assignment, received: Tensor, returned: Tensor) -> ArrayRecord:
        """Return what is sent back, and remember what the next round needs."""
        slices, seed, round_index = assignment.slice_map, self._recipe.seed, self._order.round_index
        if self._wire.is_lossless:
            return pack_slice(slices, returned, wire_dtype(self._recipe.fleet.wire, returned.dtype))
        own = (slices.pack(received), slices.pack(returned))
        residual = None if self._memory is None else self._memory.content.residual
        arrays, left = answer(self._wire, assignment, *own, residual, seed, round_index)
        if self._memory is not None:
            self._memory.save(ClientMemory(left, self._held), round_index)
        return pack_arrays(arrays)


def evaluate(message: Message, context: Context) -> Message:
    """Answer with sums over the node's own examples for the networks that the server asks about."""
    try:
        terms = read_terms(message.content)
        order = EvaluationOrder.read(from_json(message.content, "order", MOST_TERMS_BYTES), "order")
        node, recipe, method = _prepare(terms, context)
        torch.set_num_threads(_threads(recipe, context))
        records = Evaluation(recipe, method, terms.normalisation, node).answer(order, message.content)
    except (InvalidInput, Unreadable) as error:
        records = RecordDict({"report": to_json({"problem": str(error)})})
    return Message(records, reply_to=message)


def _prepare(terms: Terms, context: Context) -> tuple[Node, Recipe, Method]:
    """Return who the node is, and recipe and method of the terms, unless its own settings forbid them."""
    node = read_node(terms, context.node_config)
    with terms.opened(node.settings) as recipe:
        method, _ = build_method(recipe)
        require_consent(recipe, method, context.node_config)
    return node, recipe, method


def _arrays(content: RecordDict, name: str) -> ArrayRecord:
    if name not in content.array_records:
        raise Unreadable(f"no record {name!r}")
    return content.array_records[name]


def _threads(recipe: Recipe, context: Context) -> int:
    """Return the node's own number of threads, the recipe's, or one per core."""
    return int(context.node_config.get("threads", recipe.engine.threads or usable_cores()))


def build_client_app() -> ClientApp:
    """Return the app that SuperNodes run."""
    app = ClientApp()
    app.query()(introduce)
    app.train()(train)
    app.evaluate()(evaluate)
    return app
