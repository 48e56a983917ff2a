"""Passes over a batch that is not full: plain layers, launched anew each time, since a graph has one batch size."""

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.engines.graphs.blueprint import Blueprint
from fedfeast.engines.graphs.context import GraphContext
from fedfeast.engines.graphs.programs import Exchange, Memory, NetworkProgram
from fedfeast.engines.graphs.streams import Mark, Stream
from fedfeast.federation import Constants, Pass


class ShortBatches:
    """Runs a lane's passes over the first examples of the mini-batch at hand, from the lane's own memory."""

    def __init__(
        self, context: GraphContext, batch: Batch, constants: Constants, memory: Memory, stream: Stream, weights: Tensor
    ) -> None:
        self._context, self._batch, self._constants, self._memory = context, batch, constants, memory
        self._stream, self._weights = stream, weights
        self._programs: dict[Blueprint, NetworkProgram] = {}
        self.totals: dict[str, Tensor] = {}  # of losses, by role

    def run(self, one_pass: Pass, rows: int, carried: Tensor | None, mark: Mark) -> tuple[Tensor | None, Mark]:
        """Queue a pass; return what it will leave to the next one, to be held until the step is done, and when.

        As of captured passes, only the loss waits for the pass before.
        """
        context, batch = self._context, self._batch.leading(rows)
        program, load = self._ready(one_pass.architecture)
        with self._stream.entered():
            load()
            outputs = tuple(one.detach().requires_grad_() for one in program.forward_rows(rows))
            self._stream.wait_for(mark)
            loss, left = context.method.loss(one_pass.role, outputs, batch, carried, self._constants)
            gradients = torch.autograd.grad(loss, outputs)
            if one_pass.role not in self.totals:
                self.totals[one_pass.role] = torch.zeros((), dtype=torch.float64, device=context.device)
            self.totals[one_pass.role].add_(loss.detach())
            left_at = self._stream.mark()
            program.backward(Exchange((), gradients))
        return left, left_at

    def _ready(self, architecture: Hashable) -> tuple[NetworkProgram, Callable[[], None]]:
        """Return an architecture's program, and what loads its weights."""
        context, memory = self._context, self._memory
        blueprint = context.whole_blueprint(architecture)
        program = self._programs.get(blueprint)
        if program is None:
            with self._stream.entered():
                program = NetworkProgram(context, blueprint, self._batch, memory, may_fuse=False)
            if context.is_own:
                self._stream.finish()  # other lanes will read the same tensors that do not learn, without asking
            if architecture in context.architectures:
                self._programs[blueprint] = program
        return program, lambda: context.vectors.gather(self._weights, blueprint, memory.low, memory.full)
