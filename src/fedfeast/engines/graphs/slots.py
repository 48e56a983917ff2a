"""Client slots: a client's full-length vectors, and the lanes on which the passes of its steps run side by side."""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.data.round_batches import BatchRecord
from fedfeast.engines.graphs.blueprint import CHUNK, Blueprint
from fedfeast.engines.graphs.captures import cannot_capture, capturing
from fedfeast.engines.graphs.context import GraphContext, Shapes
from fedfeast.engines.graphs.plain_vectors import ClientVectors, Ranges
from fedfeast.engines.graphs.programs import Exchange, LossProgram, Memory, NetworkProgram
from fedfeast.engines.graphs.short_batches import ShortBatches
from fedfeast.engines.graphs.streams import Mark, Pool, Stream, current_stream, new_pool, new_stream, release_unused
from fedfeast.federation import Assignment, Constants, Pass
from fedfeast.networks import Layout
from fedfeast.routing import LeadingSlices, SliceMap

Load = Callable[[], None]


@dataclass(frozen=True, eq=False)
class Carried:
    """What a pass leaves to the next one, and when it is there."""

    value: Tensor | None
    mark: Mark


@dataclass(frozen=True, eq=False)
class ReadyNetwork:
    """An architecture on a lane, ready to run."""

    forward: Callable[[], object]
    backward: Callable[[], object]
    program: NetworkProgram  # which holds on to what the passes read
    is_captured: bool

    @classmethod
    def captured(
        cls, program: NetworkProgram, load: Load, exchange: Exchange, stream: Stream, pool: Pool
    ) -> "ReadyNetwork":
        """Capture both passes, to be replayed; the forward pass begins with loading its weights."""
        return cls(
            stream.capture(lambda: _run_forward(program, load, exchange), pool),
            stream.capture(lambda: program.backward(exchange), pool),
            program,
            is_captured=True,
        )

    @classmethod
    def uncaptured(cls, program: NetworkProgram, load: Load, exchange: Exchange) -> "ReadyNetwork":
        """Launch both passes' kernels anew each time: for an architecture that will hardly come again."""
        forward, backward = lambda: _run_forward(program, load, exchange), lambda: program.backward(exchange)
        return cls(forward, backward, program, is_captured=False)


class Lane:
    """Runs one pass at a time from memory that stays in place."""

    def __init__(
        self,
        context: GraphContext,
        weights: Tensor,
        batch: Batch,
        constants: Constants,
        priority: int,
    ) -> None:
        self._context, self._weights, self._batch, self._constants = context, weights, batch, constants
        device = context.device
        self._batch_size = self._rows = context.input_shape[0]
        self._num_images: Tensor | None = None  # how many of the batch count, where passes look it up
        if context.counts_images:
            self._num_images = torch.full((1,), self._rows, dtype=torch.int32, device=device)
        self.memory = Memory.of(context)
        self.stream = new_stream(device, priority)
        # Apart: a loss runs between a network's forward and backward pass, which share what lies in their pool.
        self._network_pool, self._loss_pool = new_pool(device), new_pool(device)
        self._holder: Load | None = None  # keeps the pool while no network is captured in it
        self._networks: dict[Blueprint, ReadyNetwork] = {}
        self._exchanges: dict[Shapes, Exchange] = {}
        current_stream(device).finish()
        self._losses: dict[tuple[str, Shapes, Shapes, int], LossProgram] = {}
        self._short = ShortBatches(context, batch, constants, self.memory, self.stream, weights)

    def network(self, architecture: Hashable) -> ReadyNetwork:
        """Return an architecture's passes, captured if training will come back to it or just did."""
        context = self._context
        blueprint = context.blueprint(architecture)  # another one if the context had forgotten it
        ready = self._networks.get(blueprint)
        if ready is None:
            # Those that training does not come back to make room: the next client has others.
            known = context.architectures
            self._networks = {one: kept for one, kept in self._networks.items() if one.architecture in known}
            ready = self._make_ready(blueprint)
        elif not ready.is_captured and not context.is_own:
            # A client's second step: the others will be replayed.
            ready = self._captured_for_now(ready.program, blueprint)
        self._networks[blueprint] = ready
        return ready

    def _make_ready(self, blueprint: Blueprint) -> ReadyNetwork:
        started, context, architecture = time.perf_counter(), self._context, blueprint.architecture
        with self.stream.entered():
            program = NetworkProgram(context, blueprint, self._batch, self.memory, self._num_images)
        if context.is_own:
            self.stream.finish()  # other lanes will read the same tensors that do not learn, without asking
        load = self._load(blueprint)
        exchange = self._exchange(self._shapes_of(architecture, program, load))
        if architecture not in context.architectures:
            return ReadyNetwork.uncaptured(program, load, exchange)
        if context.is_short_of_memory:
            release_unused()
        with capturing(f"the network {architecture}"):
            network = ReadyNetwork.captured(program, load, exchange, self.stream, self._network_pool)
        context.num_graphs += 2
        context.setup_seconds += time.perf_counter() - started
        return network

    def _captured_for_now(self, program: NetworkProgram, blueprint: Blueprint) -> ReadyNetwork:
        """Capture an architecture that one client uses; the kernels that it takes ran once before."""
        pool, architecture = self._network_pool, blueprint.architecture
        if self._holder is None:
            # Torch lets go of a pool without a graph, and the next client's would begin another beside it.
            self._holder = self.stream.capture(self.memory.touch, pool)
        exchange = self._exchange(self._context.output_shapes[architecture])
        with capturing(f"the network {architecture}"):
            return ReadyNetwork.captured(program, self._load(blueprint), exchange, self.stream, pool)

    def loss(self, role: str, architecture: Hashable, carried: Tensor | None, rows: int) -> LossProgram:
        """Return a role's captured loss over the first rows of a full batch."""
        shapes = self._context.output_shapes[architecture]
        key = (role, shapes, () if carried is None else (tuple(carried.shape),), rows)
        if key not in self._losses:
            started = time.perf_counter()
            with self.stream.entered():
                program = LossProgram(
                    self._context, role, self._batch, self._constants, self._exchange(shapes), carried,
                    None if rows == self._batch_size else rows,
                )  # fmt: skip
            with capturing(f"the loss of a {role}"):
                self.stream.rehearse(program.run)
                with self.stream.entered():
                    program.total.zero_()
                program.replay = self.stream.capture(program.run, self._loss_pool)
            self._losses[key] = program
            self._context.num_graphs += 1
            self._context.setup_seconds += time.perf_counter() - started
        return self._losses[key]

    def loss_totals(self) -> list[tuple[str, Tensor]]:
        """Return the losses added up so far, each with its role."""
        captured = [(role, program.total) for role, program in self.loss_programs()]
        return captured + list(self._short.totals.items())

    def loss_programs(self) -> list[tuple[str, LossProgram]]:
        """Return every loss captured so far, with its role."""
        return [(role, program) for (role, *_), program in self._losses.items()]

    def run(self, one_pass: Pass, carried: Carried, rows: int | None = None) -> Carried:
        """Queue a pass over the client's weights and the batch, or its first rows; return what it leaves to the next.

        Only the loss waits for the pass before, so forward passes of one step run side by side.
        """
        architecture, role = one_pass.architecture, one_pass.role
        given = one_pass.rows(rows or self._batch_size)
        if given < self._batch_size and not self._context.counts_images:
            return Carried(*self._short.run(one_pass, given, carried.value, carried.mark))
        network = self.network(architecture)
        loss = self.loss(role, architecture, carried.value, given) if rows is None else None
        with self.stream.entered():
            self._count(given)
            network.forward()
            if carried.value is not None:
                self.stream.wait_for(carried.mark)
            if loss is not None:
                value = loss.run_after(carried.value)
            else:
                exchange = self._exchange(self._context.output_shapes[architecture])
                value = self._short.measure(role, exchange, given, carried.value)
            left = Carried(value, self.stream.mark())
            network.backward()
        return left

    def _count(self, rows: int) -> None:
        """Say how many of the mini-batch's examples count, to passes that look it up."""
        if self._num_images is not None and rows != self._rows:
            self._num_images.fill_(rows)
            self._rows = rows

    def _load(self, blueprint: Blueprint) -> Load:
        """Return what copies an architecture's weights in, from where the client's lie to where its passes read."""
        memory, gather = self.memory, self._context.vectors.gather
        return lambda: gather(self._weights, blueprint, memory.low, memory.full)

    def _shapes_of(self, architecture: Hashable, program: NetworkProgram, load: Load) -> Shapes:
        """Return the shapes of an architecture's outputs; run it once if nobody did.

        What kernels and libraries do at their first call cannot be captured.
        """
        known = self._context.output_shapes
        if architecture not in known and known and self._context.fused_layers:
            known[architecture] = next(iter(known.values()))  # the elastic network has one head
        if architecture not in known:
            with self.stream.entered():
                load()
                shapes = program.forward(None)
                program.backward(self._exchange(shapes))
            if architecture in self._context.architectures and not self._context.fused_layers:
                self._rehearse(architecture, program, self._exchange(shapes))
            known[architecture] = shapes
        return known[architecture]

    def _rehearse(self, architecture: Hashable, program: NetworkProgram, exchange: Exchange) -> None:
        """Look whether an architecture can be captured, before anything is."""
        with capturing(f"the network {architecture}"):
            before = program.buffers()
            self.stream.rehearse(lambda: program.forward(exchange))
            self.stream.rehearse(lambda: program.backward(exchange))
            for name, (buffer, changes) in program.buffers().items():
                if name not in before or buffer is not before[name][0] or changes != before[name][1]:
                    # Lanes run side by side, and the buffer is one for all.
                    raise cannot_capture(f"the network {architecture}", f"its forward changes the buffer {name}")
        self.stream.finish()  # a module may have made tensors that it keeps, and other lanes will read them

    def _exchange(self, shapes: Shapes) -> Exchange:
        if shapes not in self._exchanges:
            with self.stream.entered():
                precision = self._context.precision
                self._exchanges[shapes] = Exchange.of(shapes, precision.weights, self._context.device)
        return self._exchanges[shapes]


class Slot:
    """One client at a time: its weights, its gradient, the mini-batch at hand, and lanes for its passes."""

    def __init__(self, context: GraphContext, record: BatchRecord, priority: int) -> None:
        self._context, self._priority = context, priority
        precision, device = context.precision, context.device
        self.weights = torch.zeros(_vector_size(context), dtype=precision.weights, device=device)
        self._gradient = torch.zeros_like(self.weights)
        velocity = torch.zeros_like(self.weights) if context.sgd.momentum else None
        self._vectors = ClientVectors(self.weights, self._gradient, velocity)
        # What passes compute with; the client's own weights for nearly all methods.
        self._effective = torch.zeros_like(self.weights) if context.method.changes_weights else self.weights
        self._constants: dict[str, Tensor] = {}
        self._record = torch.zeros(record.num_bytes, dtype=torch.uint8, device=device)
        self._batch = record.batch(self._record)
        self.stream = new_stream(device, priority)
        self.lanes: list[Lane] = []
        current_stream(device).finish()  # the zeros are there before any other stream looks

    @property
    def num_bytes(self) -> int:
        """The device memory of the slot's own vectors, lanes left out."""
        return slot_bytes(self._context, self._record.nbytes)

    def load(self, flat: Tensor, assignment: Assignment) -> None:
        """Take in what a client was sent of the global vector."""
        slice_map, layout = assignment.slice_map, self._context.method.network.layout
        with self.stream.entered():
            if slice_map.is_leading:
                self.weights[: len(flat)].copy_(flat)  # only what the client was sent is ever read of it
            else:
                leading_map(layout, slice_map).scatter_(self.weights[: layout.size], slice_map.gather(flat))
            if self._vectors.velocity is not None:
                self._vectors.velocity.zero_()
            for name, value in assignment.constants.items():
                if name not in self._constants:
                    self._constants[name] = torch.zeros_like(value, device=self.weights.device)
                self._constants[name].copy_(value)

    def returned(self, slice_map: SliceMap) -> Tensor:
        """Return a copy of the client's vector, made on the current stream; the slot's steps must be done."""
        layout = self._context.method.network.layout
        return leading_map(layout, slice_map).gather(self.weights[: layout.size])

    def step(
        self,
        passes: Sequence[Pass],
        record: Tensor,
        active: Tensor,
        learning_rate: float,
        rows: int | None = None,
        ranges: Ranges | None = None,
    ) -> None:
        """Run the passes of a local step side by side, then update the weights.

        Rows are given where the mini-batch has fewer than all, ranges of the active positions where only they change.
        """
        with self.stream.entered():
            self._record.copy_(record, non_blocking=True)
            if self._context.method.changes_weights:
                self._change(self._effective, self._context.method.weights(self._whole(self.weights), self._constants))
        ready = self.stream.mark()
        carried = Carried(None, None)
        held = []  # what passes left: its memory must not serve others before all of them are done
        at_work: dict[Lane, Pass] = {}
        for lane, one_pass in zip(self.lanes_for(len(passes)), passes, strict=True):
            if lane in at_work:  # its gradients make room for those of the next pass
                self._add_gradients(lane, at_work.pop(lane))
                ready = self.stream.mark()
            lane.stream.wait_for(ready)
            carried = lane.run(one_pass, carried, rows)
            held.append(carried)
            at_work[lane] = one_pass
        # The largest last: the others' gradients are added while it runs, in the same order every time.
        for lane, one_pass in sorted(at_work.items(), key=lambda one: self._context.plan(one[1].architecture).size):
            self._add_gradients(lane, one_pass)
        vectors = self._context.vectors
        with self.stream.entered():
            if self._context.method.changes_weights:
                whole = self._whole(self._gradient), self._whole(self.weights)
                self._change(self._gradient, self._context.method.weight_gradient(*whole, self._constants))
            vectors.step(self._vectors, active, self._context.sgd, learning_rate, ranges)

    def finish(self) -> None:
        """Wait until all work queued so far is done."""
        for stream in (self.stream, *(lane.stream for lane in self.lanes)):
            stream.finish()

    def lanes_for(self, num_passes: int) -> list[Lane]:
        """Return a lane for each of a number of passes; some share one where memory is short."""
        num_lanes = min(num_passes, self._context.most_lanes)
        while len(self.lanes) < num_lanes:
            memory = self._effective, self._batch, self._constants
            # The first pass goes first: it is the longest of a method's that has several.
            priority = min(0, self._priority + 1) if self.lanes else self._priority
            self.lanes.append(Lane(self._context, *memory, priority))
        return [self.lanes[lane_of(position, num_lanes)] for position in range(num_passes)]

    def _add_gradients(self, lane: Lane, one_pass: Pass) -> None:
        """Add a pass's gradients to the step's, when they are there."""
        blueprint = self._context.blueprint(one_pass.architecture)
        self.stream.wait_for(lane.stream.mark())
        with self.stream.entered():
            self._context.vectors.add_gradients(self._gradient, lane.memory.gradients, blueprint)

    def _whole(self, vector: Tensor) -> Tensor:
        """Return a vector without its last chunk's pads."""
        return vector[: self._context.method.network.layout.size]

    def _change(self, vector: Tensor, values: Tensor) -> None:
        self._whole(vector).copy_(values)


def slot_bytes(context: GraphContext, record_bytes: int) -> int:
    """Return the device memory of a slot's own vectors, lanes left out."""
    vectors = 2 + bool(context.method.changes_weights) + bool(context.sgd.momentum)
    return vectors * _vector_size(context) * context.precision.weights.itemsize + record_bytes


def _vector_size(context: GraphContext) -> int:
    size = context.method.network.layout.size
    return size + -size % CHUNK  # the last chunk may reach beyond the last tensor


def lane_of(position: int, num_lanes: int) -> int:
    """Return the lane of a step's pass: the first pass, on which others may wait, has one to itself if it can."""
    return 0 if position == 0 or num_lanes == 1 else 1 + (position - 1) % (num_lanes - 1)


def leading_map(layout: Layout, slice_map: SliceMap) -> SliceMap:
    """Return where a slot holds a client's tensors: always at the front of the network's own."""
    return LeadingSlices(layout, slice_map.layout)


def _run_forward(program: NetworkProgram, load: Load, exchange: Exchange) -> None:
    """Load an architecture's weights, then pass forward."""
    load()
    program.forward(exchange)
