"""The eager engine: clients one after another in plain PyTorch. The reference that every other engine must equal."""

from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np
import torch
from torch import Tensor

from fedfeast.data import Batch, Examples, Preparation, ShardedExamples, draw_local_plan, make_batches
from fedfeast.federation import (
    CLASS_PRIOR,
    Assignment,
    Collected,
    Constants,
    Engine,
    LocalSgd,
    Method,
    Pass,
    RoundOrder,
    activated_shares,
    counted_by,
    pass_loss,
)
from fedfeast.networks import Layout
from fedfeast.networks.normalisation import ByBatch, by_batch
from fedfeast.randomness import named_generator

LEAF_SETS = 64  # kept at once; a set is a few hundred small view objects

RoleLosses = dict[str, list[Tensor]]


class ClientSlot:
    """The weights and gradient of the client at work, as one flat vector each, reused for every client."""

    def __init__(self, method: Method, dtype: torch.dtype, device: torch.device, size: int | None = None) -> None:
        self._method, self._network, self._device = method, method.network, device
        size = method.network.layout.size if size is None else size  # of the largest client's vector
        self._weights, self._gradient = (torch.zeros(size, dtype=dtype, device=device) for _ in range(2))
        # What passes compute with; the client's own weights for nearly all methods.
        self._effective = torch.zeros_like(self._weights) if method.changes_weights else self._weights
        self._leaves = lru_cache(maxsize=LEAF_SETS)(self._make_leaves)
        self._reached: set[str] = set()  # the tensors that the step's passes went through
        self._passed: set[Hashable] = set()  # the networks
        self.activations: Counter[frozenset[Hashable]] = Counter()  # the client's steps, by their networks

    def load(self, assignment: Assignment, received: Tensor) -> None:
        """Take in the vector that a client received."""
        self.layout = layout = assignment.slice_map.layout
        self.weights, self.gradient = self._weights[: layout.size], self._gradient[: layout.size]
        self.weights.copy_(received)
        self._velocity: Tensor | None = None  # made with the first step that has momentum
        self.activations = Counter()
        self.constants: Constants = {name: one.to(self._device) for name, one in assignment.constants.items()}

    def begin_step(self) -> None:
        """Forget the last step's gradient; make the weights that this step's passes compute with."""
        self.gradient.zero_()
        self._reached.clear()
        self._passed.clear()
        if self._method.changes_weights:
            self._effective[: self.layout.size] = self._method.weights(self.weights, self.constants)

    def end_step(self, sgd: LocalSgd, learning_rate: float) -> None:
        """Update the weights by the gradients that the step's passes added up."""
        self.activations[frozenset(self._passed)] += 1
        if self._method.changes_weights:
            self.gradient.copy_(self._method.weight_gradient(self.gradient, self.weights, self.constants))
        if sgd.momentum and self._velocity is None:
            self._velocity = torch.zeros_like(self.weights)
        ranges = None if sgd.unreached == "decay" else reached_ranges(self.layout, self._reached)
        sgd_step_(self.weights, self.gradient, sgd, learning_rate, self._velocity, ranges)

    def leaves(self, architecture: Hashable) -> "Leaves":
        """Return an architecture's tensors as autograd leaves, each with its place in the gradient."""
        leaves = self._leaves(self.layout, architecture)
        self._reached.update(leaves.weights)
        self._passed.add(architecture)
        return leaves

    def _make_leaves(self, layout: Layout, architecture: Hashable) -> "Leaves":
        shapes = self._network.shapes(architecture)
        views = layout.views(self._effective, shapes)
        weights = {name: view.detach().requires_grad_() for name, view in views.items()}
        return Leaves(weights, list(layout.views(self._gradient, shapes).values()))


@dataclass(frozen=True, eq=False)
class Leaves:
    """Views of a slot's weights that autograd differentiates by, and the same views of its gradient."""

    weights: dict[str, Tensor]
    gradients: list[Tensor]

    def add_gradient_of(self, loss: Tensor) -> None:
        """Add the loss's gradient in place; no full-size gradient ever exists."""
        for total, gradient in zip(self.gradients, torch.autograd.grad(loss, list(self.weights.values())), strict=True):
            total.add_(gradient)


def train_client(
    method: Method,
    assignment: Assignment,
    slot: ClientSlot,
    batches: Iterable[Batch],
    sgd: LocalSgd,
    learning_rate: float,
    generator: np.random.Generator,
) -> RoleLosses:
    """Train the slot's weights in place over the batches; return every pass's loss by role."""
    losses: RoleLosses = defaultdict(list)
    for step, batch in enumerate(batches):
        slot.begin_step()
        layers = by_batch if batch.draw is None else ByBatch(batch.draw)
        carried = None
        for one_pass in method.passes(assignment, step, generator):
            leaves = slot.leaves(one_pass.architecture)
            given = batch if one_pass.part == 1 else batch.leading(one_pass.rows(len(batch.inputs)))
            outputs = method.network.forward(leaves.weights, given.inputs, one_pass.architecture, layers)
            loss, carried = pass_loss(method, one_pass.role, outputs, given, carried, slot.constants)
            leaves.add_gradient_of(loss)
            losses[one_pass.role].append(loss.detach())
        slot.end_step(sgd, learning_rate)
    return losses


def add_up_losses(losses: RoleLosses) -> dict[str, tuple[float, int]]:
    """Return by role the sum of all passes' losses, and how many there were."""
    return {role: (float(torch.stack(values).double().sum()), len(values)) for role, values in losses.items()}


def sgd_step_(
    weights: Tensor,
    gradient: Tensor,
    sgd: LocalSgd,
    learning_rate: float,
    velocity: Tensor | None = None,
    ranges: Iterable[slice] | None = None,
) -> None:
    """Clip the summed gradient's norm, then step once; decay and momentum act on every position, or in some ranges."""
    norm = torch.linalg.vector_norm(gradient)
    gradient.mul_((sgd.clip_norm / (norm + 1e-6)).clamp(max=1.0))
    for part in [slice(None)] if ranges is None else ranges:
        here, slope = weights[part], gradient[part]
        if velocity is None:
            here.mul_(1.0 - learning_rate * sgd.weight_decay).add_(slope, alpha=-learning_rate)
        else:
            pushed = velocity[part].mul_(sgd.momentum).add_(slope).add_(here, alpha=sgd.weight_decay)
            here.sub_(pushed, alpha=learning_rate)


def reached_ranges(layout: Layout, reached: Container[str]) -> Iterator[slice]:
    """Yield the parts of a flat vector that hold the named tensors, neighbours joined."""
    inside = sorted((layout.offsets[name], prod(shape)) for name, shape in layout.shapes.items() if name in reached)
    start = end = 0
    for offset, size in inside:
        if offset != end:
            yield slice(start, end)
            start = offset
        end = offset + size
    yield slice(start, end)


@dataclass(frozen=True)
class LocalRound:
    """What is the same for all clients of a round."""

    preparation: Preparation
    sgd: LocalSgd
    seed: int
    round_index: int
    learning_rate: float
    dtype: torch.dtype


def train_locally(
    method: Method, assignment: Assignment, received: Tensor, examples: Examples, slot: ClientSlot, this: LocalRound
) -> tuple[RoleLosses, int]:
    """Train what a client received on its examples; return the losses and the steps, the weights are the slot's."""
    generator = named_generator(this.seed, "round", this.round_index, "client", assignment.client.index)
    plan = draw_local_plan(len(examples), examples.shape, this.preparation, this.round_index, generator)
    batches = make_batches(examples, plan, this.preparation, this.dtype)
    slot.load(with_prior(assignment, examples.labels, this.preparation, this.dtype), received)
    return train_client(method, assignment, slot, batches, this.sgd, this.learning_rate, generator), plan.num_steps


def with_prior(assignment: Assignment, labels: Tensor, preparation: Preparation, dtype: torch.dtype) -> Assignment:
    """Return a client's assignment with its class prior, where it adds one to its logits; it leaves no client."""
    if preparation.class_prior is None:
        return assignment
    prior = preparation.class_prior.of(labels, dtype)
    return replace(assignment, constants={**assignment.constants, CLASS_PRIOR: prior})


def draw_passes(
    method: Method,
    assignment: Assignment,
    shape: tuple[int, ...],
    preparation: Preparation,
    seed: int,
    round_index: int,
) -> list[list[Pass]]:
    """Draw the passes that a client's round has, step by step, as the client does; its examples have a shape."""
    client = assignment.client
    generator = named_generator(seed, "round", round_index, "client", client.index)
    plan = draw_local_plan(client.num_examples, shape, preparation, round_index, generator)
    return [method.passes(assignment, step, generator) for step in range(plan.num_steps)]


class EagerEngine(Engine):
    """Runs a round client by client on one device."""

    def __init__(
        self,
        method: Method,
        examples: ShardedExamples,
        preparation: Preparation,
        sgd: LocalSgd,
        seed: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.method, self._examples, self._preparation, self._sgd = method, examples, preparation, sgd
        self._seed, self._dtype, self._device = seed, dtype, torch.device(device)
        self._slot = ClientSlot(method, dtype, self._device)

    def collect(self, order: RoundOrder) -> Collected:
        """Train every assignment from the same global vector and take the answers in."""
        policy, round_index = order.policy, order.round_index
        aggregator, link = policy.aggregator(order.flat, len(order.assignments)), policy.link(round_index)
        losses: RoleLosses = defaultdict(list)
        num_steps = 0
        this = LocalRound(self._preparation, self._sgd, self._seed, round_index, order.learning_rate, self._dtype)
        for assignment in order.assignments:
            examples = self._examples.of_client(assignment.client.index)
            sent = assignment.slice_map.gather(order.flat)
            received = link.deliver(assignment, sent)
            client_losses, steps = train_locally(self.method, assignment, received, examples, self._slot, this)
            replied = policy.reply(assignment, round_index, received, self._slot.weights)
            returned = link.answer(assignment, sent, received, replied)
            counted = self.method.counted(assignment, sent, returned)
            if policy.aggregation.activated_share:
                layout, activations = assignment.slice_map.layout, self._slot.activations
                counted = counted_by(activated_shares(self.method.network, layout, activations, self._device), counted)
            aggregator.take(assignment, sent, returned, counted)
            num_steps += steps
            for role, values in client_losses.items():
                losses[role].extend(values)
        totals = add_up_losses(losses)
        facts = (aggregator.norms, aggregator.refusals)
        return Collected(aggregator.answers, num_steps, totals, 0.0, *facts, carried=link.carried)
