"""Batches that are not full: their losses, and where captured passes cannot serve them, passes launched anew."""

from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.engines.graphs.blueprint import Blueprint
from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.programs import Exchange, Memory, NetworkProgram
from fedfeast.engines.graphs.streams import Mark, Stream
from fedfeast.federation import Constants, Pass, pass_loss


class ShortBatches:
    """What a lane does for the first examples of the mini-batch at hand, from the lane's own memory."""

    def __init__(
        self, context: GraphContext, batch: Batch, constants: Constants, memory: Memory, stream: Stream, weights: Tensor
    ) -> None:
        self._context, self._batch, self._constants, self._memory = context, batch, constants, memory
        self._stream, self._weights = stream, weights
        self._programs: dict[Blueprint, NetworkProgram] = {}
        self.totals: dict[str, Tensor] = {}  # of losses, by role

    def measure(self, role: str, exchange: Exchange, rows: int, carried: Tensor | None) -> Tensor | None:
        """Queue the loss of the first outputs: their gradients, zeros behind them; return what it leaves.

        Some 30 launches, and one size among many: not worth a graph.
        """
        gradients, left = self._measure(role, [one[:rows] for one in exchange.outputs], rows, carried)
        for room, gradient in zip(exchange.gradients, gradients, strict=True):
            room[:rows].copy_(gradient)
            room[rows:].zero_()
        # The lane's next pass may come before whoever reads it, and writes its own outputs over these.
        return left if left is None or left is carried else left.clone()

    def run(self, one_pass: Pass, rows: int, carried: Tensor | None, mark: Mark) -> tuple[Tensor | None, Mark]:
        """Queue a pass of plain layers; return what it will leave to the next one, to be held until the step is done.

        And when that is there. As of captured passes, only the loss waits for the pass before.
        """
        program, load = self._ready(one_pass.architecture)
        with self._stream.entered():
            load()
            outputs = program.forward_rows(rows)
            self._stream.wait_for(mark)
            gradients, left = self._measure(one_pass.role, outputs, rows, carried)
            left_at = self._stream.mark()
            program.backward(Exchange((), gradients))
        return left, left_at

    def _measure(
        self, role: str, outputs: Sequence[Tensor], rows: int, carried: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """Return the gradients by outputs, and what the loss leaves; add the loss to its role's total."""
        leaves = tuple(one.detach().requires_grad_() for one in outputs)
        batch = self._batch.leading(rows)
        loss, left = pass_loss(self._context.method, role, leaves, batch, carried, self._constants)
        if role not in self.totals:
            self.totals[role] = torch.zeros((), dtype=torch.float64, device=self._context.device)
        self.totals[role].add_(loss.detach())
        return torch.autograd.grad(loss, leaves, materialize_grads=True), left

    def _ready(self, architecture: Hashable) -> tuple[NetworkProgram, Callable[[], None]]:
        """Return an architecture's program, and what loads its weights."""
        context, memory = self._context, self._memory
        blueprint = context.blueprint(architecture)
        program = self._programs.get(blueprint)
        if program is None:
            with self._stream.entered():
                program = NetworkProgram(context, blueprint, self._batch, memory)
            if context.is_own:
                self._stream.finish()  # other lanes will read the same tensors that do not learn, without asking
            if architecture in context.architectures:
                self._programs[blueprint] = program
        return program, lambda: context.vectors.gather(self._weights, blueprint, memory.low, memory.full)
