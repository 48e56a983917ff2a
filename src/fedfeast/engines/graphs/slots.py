"""Client slots: a client's full-length vectors, and the lanes on which the passes of its steps run side by side."""

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.data.round_batches import BatchRecord
from fedfeast.engines.graphs.blueprint import CHUNK
from fedfeast.engines.graphs.programs import Exchange, LossProgram, Memory, NetworkProgram
from fedfeast.engines.graphs.streams import Mark, Pool, Stream, current_stream, new_pool, new_stream
from fedfeast.engines.graphs.workshop import Shapes, Workshop
from fedfeast.federation import Pass

COUNTERS = 65536  # that the fused kernels of one lane share


@dataclass(frozen=True, eq=False)
class Carried:
    """What a pass leaves to the next one, and when it is there."""

    value: Tensor | None
    mark: Mark


class CapturedNetwork:
    """An architecture on a lane, ready to be replayed."""

    def __init__(self, program: NetworkProgram, exchange: Exchange, stream: Stream, pool: Pool) -> None:
        self.forward = stream.capture(lambda: _ignore(program.forward(exchange)), pool)
        self.backward = stream.capture(lambda: program.backward(exchange), pool)


class Lane:
    """Runs one pass at a time from memory that stays in place."""

    def __init__(self, workshop: Workshop, batch: Batch, priority: int) -> None:
        self._workshop, self._batch = workshop, batch
        precision, device = workshop.precision, workshop.device
        low = torch.zeros(workshop.compact_size, dtype=precision.activations, device=device)
        full = low if precision.activations == precision.weights else low.to(precision.weights)
        self.memory = Memory(
            low,
            full,
            torch.zeros(workshop.gradient_size, dtype=precision.weights, device=device),
            torch.zeros(COUNTERS, dtype=torch.int32, device=device),
        )
        self.stream = new_stream(device, priority)
        # Apart: a loss runs between a network's forward and backward pass, which share what lies in their pool.
        self._network_pool, self._loss_pool = new_pool(device), new_pool(device)
        self._networks: dict[Hashable, CapturedNetwork] = {}
        self._exchanges: dict[Shapes, Exchange] = {}
        current_stream(device).finish()
        self._losses: dict[tuple[str, Shapes, Shapes], LossProgram] = {}

    def network(self, architecture: Hashable) -> CapturedNetwork:
        """Return an architecture's captured passes."""
        if architecture not in self._networks:
            started = time.perf_counter()
            workshop = self._workshop
            program = NetworkProgram(workshop, workshop.blueprint(architecture), self._batch.images, self.memory)
            if architecture not in workshop.output_shapes:
                self._run_once(architecture, program)
            exchange = self._exchange(workshop.output_shapes[architecture])
            self._networks[architecture] = CapturedNetwork(program, exchange, self.stream, self._network_pool)
            workshop.num_graphs += 2
            workshop.setup_seconds += time.perf_counter() - started
        return self._networks[architecture]

    def loss(self, role: str, architecture: Hashable, carried: Tensor | None) -> LossProgram:
        """Return a role's captured loss."""
        shapes = self._workshop.output_shapes[architecture]
        key = (role, shapes, () if carried is None else (tuple(carried.shape),))
        if key not in self._losses:
            started = time.perf_counter()
            with self.stream.entered():
                program = LossProgram(self._workshop, role, self._batch, self._exchange(shapes), carried)
            program.replay = self.stream.capture(program.run, self._loss_pool)
            self._losses[key] = program
            self._workshop.num_graphs += 1
            self._workshop.setup_seconds += time.perf_counter() - started
        return self._losses[key]

    def loss_programs(self) -> list[tuple[str, LossProgram]]:
        """Return every loss captured so far, with its role."""
        return [(role, program) for (role, _, _), program in self._losses.items()]

    def run(self, one_pass: Pass, weights: Tensor, carried: Carried) -> Carried:
        """Queue a pass over a client's weights; return what it will leave to the next one.

        Only the loss waits for the pass before, so forward passes of one step run side by side.
        """
        vectors, blueprint = self._workshop.vectors, self._workshop.blueprint(one_pass.architecture)
        network = self.network(one_pass.architecture)
        loss = self.loss(one_pass.role, one_pass.architecture, carried.value)
        with self.stream.entered():
            vectors.gather(weights, blueprint, self.memory.low, self.memory.full)
            network.forward()
            if carried.value is not None:
                assert loss.carried_in is not None
                self.stream.wait_for(carried.mark)
                loss.carried_in.copy_(carried.value)
            loss.replay()
            left = Carried(loss.carried_out, self.stream.mark())
            network.backward()
        return left

    def _run_once(self, architecture: Hashable, program: NetworkProgram) -> None:
        """Run uncaptured once: what kernels and libraries do at their first call cannot be captured."""
        with self.stream.entered():
            self._workshop.output_shapes[architecture] = shapes = program.forward(None)
            program.backward(self._exchange(shapes))

    def _exchange(self, shapes: Shapes) -> Exchange:
        if shapes not in self._exchanges:
            with self.stream.entered():
                precision = self._workshop.precision
                self._exchanges[shapes] = Exchange.of(shapes, precision.weights, self._workshop.device)
        return self._exchanges[shapes]


class Slot:
    """One client at a time: its weights, its gradient, the mini-batch at hand, and lanes for its passes."""

    def __init__(self, workshop: Workshop, record: BatchRecord, priority: int) -> None:
        self._workshop, self._priority = workshop, priority
        size, precision, device = workshop.method.network.layout.size, workshop.precision, workshop.device
        size += -size % CHUNK  # the last chunk may reach beyond the last tensor
        self.weights = torch.zeros(size, dtype=precision.weights, device=device)
        self._gradient = torch.zeros(size, dtype=precision.weights, device=device)
        self._record = torch.zeros(record.num_bytes, dtype=torch.uint8, device=device)
        self._batch = record.batch(self._record)
        self.stream = new_stream(device, priority)
        self.lanes: list[Lane] = []
        current_stream(device).finish()  # the zeros are there before any other stream looks

    @property
    def num_bytes(self) -> int:
        """The device memory of the slot's own vectors, lanes left out."""
        return self.weights.nbytes + self._gradient.nbytes + self._record.nbytes

    def load(self, flat: Tensor) -> None:
        """Take in the global vector; only what the client was routed is ever read of it."""
        with self.stream.entered():
            self.weights[: len(flat)].copy_(flat)

    def step(self, passes: Sequence[Pass], record: Tensor, active: Tensor, learning_rate: float) -> None:
        """Run the passes of a local step side by side, then update the weights."""
        with self.stream.entered():
            self._record.copy_(record, non_blocking=True)
        ready = self.stream.mark()
        carried = Carried(None, None)
        for lane, one_pass in zip(self.lanes_for(len(passes)), passes, strict=True):
            lane.stream.wait_for(ready)
            carried = lane.run(one_pass, self.weights, carried)
        vectors = self._workshop.vectors
        with self.stream.entered():
            for lane, one_pass in zip(self.lanes, passes, strict=False):
                self.stream.wait_for(lane.stream.mark())
                blueprint = self._workshop.blueprint(one_pass.architecture)
                vectors.add_gradients(self._gradient, lane.memory.gradients, blueprint)
            vectors.step(self.weights, self._gradient, active, self._workshop.sgd, learning_rate)

    def lanes_for(self, num_passes: int) -> list[Lane]:
        """Return a lane for each of a number of passes."""
        while len(self.lanes) < num_passes:
            self.lanes.append(Lane(self._workshop, self._batch, self._priority))
        return self.lanes[:num_passes]


def _ignore(value: object) -> None:
    """Let go of a value, and with it of the memory it holds."""
