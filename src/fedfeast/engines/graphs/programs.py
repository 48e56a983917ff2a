"""The captured parts of a pass: forward, loss, backward; each reads and writes memory that stays in place."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.engines.graphs.blueprint import Blueprint
from fedfeast.engines.graphs.context import GraphContext, Shapes
from fedfeast.federation import Constants, pass_loss
from fedfeast.networks import Layout
from fedfeast.networks.built import BuiltNetwork, Member
from fedfeast.networks.built.skeleton import Skeleton
from fedfeast.networks.layers import Layers
from fedfeast.networks.normalisation import ByBatch, by_batch

if TYPE_CHECKING:  # kernels need Triton, which is not everywhere
    from fedfeast.engines.graphs.fused_layers import FusedLayers

COUNTERS = 65536  # that the fused kernels of a lane share which run one after another


@dataclass(frozen=True, eq=False)
class Exchange:
    """Where a network leaves its outputs and finds the gradients by them."""

    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]

    @classmethod
    def of(cls, shapes: Shapes, dtype: torch.dtype, device: torch.device) -> "Exchange":
        """Make room for outputs of these shapes."""
        rooms = [tuple(torch.zeros(shape, dtype=dtype, device=device) for shape in shapes) for _ in range(2)]
        return cls(rooms[0], rooms[1])


@dataclass(frozen=True, eq=False)
class Memory:
    """A lane's buffers: weights of the architecture at work, rounded and whole, and its gradients."""

    low: Tensor  # convolutions
    full: Tensor  # all else
    gradients: Tensor
    counters: Tensor  # a row for each branch of a graph

    @classmethod
    def of(cls, context: GraphContext) -> "Memory":
        """Make room for any architecture that training comes back to."""
        precision, device, (rounded, others) = context.precision, context.device, context.compact_sizes
        return cls(
            torch.zeros(rounded, dtype=precision.activations, device=device),
            torch.zeros(others, dtype=precision.weights, device=device),
            torch.zeros(context.gradient_size, dtype=precision.weights, device=device),
            torch.zeros(2, COUNTERS, dtype=torch.int32, device=device),
        )

    def touch(self) -> None:
        """Do the least work there is: zero a counter that is zero."""
        self.counters[0, :1].zero_()

    @staticmethod
    def num_bytes(context: GraphContext) -> int:
        """Return the device memory that these buffers take."""
        (rounded, others), precision = context.compact_sizes, context.precision
        whole = (others + context.gradient_size) * precision.weights.itemsize
        return rounded * precision.activations.itemsize + whole + 2 * COUNTERS * torch.int32.itemsize


class NetworkProgram:
    """One architecture's forward and backward pass over a lane's memory."""

    def __init__(
        self,
        context: GraphContext,
        blueprint: Blueprint,
        batch: Batch,
        memory: Memory,
        num_images: Tensor | None = None,  # how many of the batch count, where fused layers look it up
    ) -> None:
        self._network, self._blueprint, self._inputs = context.method.network, blueprint, batch.inputs
        self._precision, self._is_own, device = context.precision, context.is_own, memory.full.device
        self._skeleton: Skeleton | None = None
        if isinstance(self._network, BuiltNetwork):
            assert isinstance(blueprint.architecture, Member)
            # Graphs read its tensors that do not learn, so that it must be there before them and outlive them.
            self._skeleton = self._network.skeleton(blueprint.architecture, context.precision.weights, device)
        shapes = blueprint.layout.shapes
        self._weights = blueprint.weights(memory.low, memory.full)
        self._layers: Layers = by_batch if batch.draw is None else ByBatch(batch.draw)
        leaves = list(shapes)
        self._fused: FusedLayers | None = None
        if context.fused_layers:
            from fedfeast.engines.graphs import fused_layers

            self._layers = self._fused = fused_layers.FusedLayers(
                blueprint.plan, memory.gradients, memory.counters, num_images
            )
            leaves = [name for name in shapes if not fused_layers.is_fused(name)]
        for name in leaves:
            self._weights[name] = self._weights[name].detach().requires_grad_()
        self._leaves = [self._weights[name] for name in leaves]
        places = Layout(
            {name: place.start for name, place in blueprint.plan.places.items()}, shapes, blueprint.plan.size
        )
        self._places = list(places.views(memory.gradients, {name: shapes[name] for name in leaves}).values())
        self._outputs: tuple[Tensor, ...] = ()

    def forward(self, exchange: Exchange | None) -> Shapes:
        """Compute the outputs and keep what the backward pass needs."""
        outputs = self.forward_rows(len(self._inputs))
        if exchange is not None:
            for room, output in zip(exchange.outputs, outputs, strict=True):
                room.copy_(output.detach())
        return tuple(tuple(output.shape) for output in outputs)

    def forward_rows(self, rows: int) -> tuple[Tensor, ...]:
        """Return the outputs of the first examples, and keep what the backward pass needs."""
        inputs = self._inputs[:rows]
        # One's own modules are written for inputs in torch's own order, images too.
        inputs = inputs.contiguous() if self._is_own else inputs
        with self._rounding():
            outputs = self._network.forward(self._weights, inputs, self._blueprint.architecture, self._layers)
        self._outputs = tuple(output.to(self._precision.weights) for output in outputs)
        return self._outputs

    def backward(self, exchange: Exchange) -> None:
        """Store the gradients by the weights, given those by the outputs; forget the rest."""
        trunk = [] if self._fused is None else [self._fused.output]
        gradients = torch.autograd.grad(self._outputs, [*self._leaves, *trunk], exchange.gradients)
        self._outputs = ()
        for place, gradient in zip(self._places, gradients, strict=False):
            place.copy_(gradient)
        if self._fused is not None:
            self._fused.backward(gradients[-1])

    def buffers(self) -> dict[str, tuple[Tensor, int]]:
        """Return every tensor of a user's module that does not learn, with how often it was changed."""
        module = None if self._skeleton is None else self._skeleton.module
        return {} if module is None else {name: (one, one._version) for name, one in module.named_buffers()}

    def _rounding(self) -> AbstractContextManager[object]:
        rounded = self._precision.products
        if rounded is None:
            return nullcontext()
        # Without its cache, whose tensors would end with the capture.
        return torch.autocast(self._inputs.device.type, rounded, cache_enabled=False)


class LossProgram:
    """The loss of a role: from outputs to their gradients, with what passes leave to one another."""

    def __init__(
        self,
        context: GraphContext,
        role: str,
        batch: Batch,
        constants: Constants,
        exchange: Exchange,
        carried: Tensor | None,
        rows: int | None = None,  # of the batch, the first ones, that the role is given; without it all
    ) -> None:
        self._method, self._role, self._exchange, self._rows = context.method, role, exchange, rows
        self._batch = batch if rows is None else batch.leading(rows)
        self._constants = constants
        self.carried_in = None if carried is None else torch.zeros_like(carried)
        self.total = torch.zeros((), dtype=torch.float64, device=context.device)
        _, left = self._measure()
        self._leaves_new = left is not None and left is not self.carried_in
        self.carried_out = torch.zeros_like(left) if left is not None and self._leaves_new else self.carried_in
        self.replay: Callable[[], None] = self.run

    def run(self) -> None:
        """Compute the gradients by the outputs; add the loss to the total."""
        loss, left = self._measure()
        self.total.add_(loss.detach())
        if self._leaves_new:
            assert self.carried_out is not None
            assert left is not None
            self.carried_out.copy_(left)

    def run_after(self, carried: Tensor | None) -> Tensor | None:
        """Do it as it was captured, given what the pass before has left; return what this one leaves."""
        if carried is not None:
            assert self.carried_in is not None
            self.carried_in.copy_(carried)
        self.replay()
        return self.carried_out

    def _measure(self) -> tuple[Tensor, Tensor | None]:
        outputs = tuple(output[: self._rows].detach().requires_grad_() for output in self._exchange.outputs)
        loss, left = pass_loss(self._method, self._role, outputs, self._batch, self.carried_in, self._constants)
        gradients = torch.autograd.grad(loss, outputs, materialize_grads=True)  # 0 by an output that no loss looks at
        for room, gradient in zip(self._exchange.gradients, gradients, strict=True):
            room[: self._rows].copy_(gradient)
            if self._rows is not None:
                room[self._rows :].zero_()
        return loss, left
