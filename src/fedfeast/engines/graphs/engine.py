"""The graph engine: captured passes, clients side by side, for a CUDA device. It equals the eager engine."""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedfeast.data import Preparation, ShardedExamples
from fedfeast.data.batches import LocalPlan
from fedfeast.data.randaugment import send
from fedfeast.data.round_batches import BatchRecord
from fedfeast.engines.eager import EagerEngine
from fedfeast.engines.graphs.blueprint import joined_ranges
from fedfeast.engines.graphs.captures import CannotCapture
from fedfeast.engines.graphs.context import GraphContext, Precision, can_fuse, can_run_cuda
from fedfeast.engines.graphs.memory import Arrangement, arrangement_that_fits, estimate_footprint
from fedfeast.engines.graphs.mini_batches import BatchesAhead, BatchSource, DrawnBatches, RoundBatches
from fedfeast.engines.graphs.plain_vectors import Ranges
from fedfeast.engines.graphs.slots import Slot, leading_map
from fedfeast.engines.graphs.streams import Mark, current_stream, most_urgent
from fedfeast.errors import InvalidInput
from fedfeast.federation import (
    CLASS_PRIOR,
    Accumulator,
    Aggregator,
    Assignment,
    Carried,
    Collected,
    Engine,
    Link,
    LocalSgd,
    Method,
    Pass,
    RoundOrder,
    count_activations,
    counted_by,
)
from fedfeast.units import GIB

MOST_SLOTS = 12  # a slot and its lanes take four streams, and PyTorch hands out 32 of a priority before it repeats


@dataclass(frozen=True, eq=False)
class ClientRound:
    """One client's round, every random choice drawn."""

    assignment: Assignment
    drawn: DrawnBatches
    passes: Sequence[Sequence[Pass]]  # of each step

    @property
    def plan(self) -> LocalPlan:
        """The client's mini-batches."""
        return self.drawn.plan


class GraphEngine(Engine):
    """Runs the clients of a cohort side by side, each step as captured graphs."""

    prepares_ahead = True

    def __init__(
        self,
        method: Method,
        examples: ShardedExamples,
        preparation: Preparation,
        sgd: LocalSgd,
        seed: int,
        precision: Precision,
        device: torch.device,
    ) -> None:
        self.method, self._examples, self._preparation, self._sgd = method, examples, preparation, sgd
        self._seed, self._device = seed, device
        precision = precision.for_network(method.network)
        self._record = BatchRecord.of(examples.pool, preparation, precision.activations)
        self._batches = BatchesAhead(BatchSource(examples, preparation, self._record, seed), device)
        self.context = GraphContext(
            method, sgd, precision, device, self._record.input_shape,
            fused=can_fuse(precision, device), short_batches=preparation.last_batch == "short",
            in_cuda=can_run_cuda(precision, device),
        )  # fmt: skip
        _wake_autograd(device)
        torch.backends.cudnn.deterministic = True  # plain layers give the same bits twice, as the fused ones do
        self._priors: dict[int, Tensor] = {}  # by client
        self._slots: list[Slot] = []
        self._arrangement: Arrangement | None = None  # measured with the first slot
        self._eager: EagerEngine | None = None  # runs the rounds of what cannot be captured

    def collect(self, order: RoundOrder) -> Collected:
        """Train every assignment from the same global vector and take the answers in."""
        if self._eager is None:
            try:
                return self._collect(order)
            except CannotCapture as error:
                reason = str(error)
            # Nothing of the round was merged, so that it can begin again elsewhere.
            self._free_slots()
            self._eager = self._eager_engine()
            weights = str(self.context.precision.weights).removeprefix("torch.")
            logging.getLogger("fedfeast").warning("%s: rounds run on the eager engine, in %s", reason, weights)
        return replace(self._eager.collect(order), notes={"engine": "eager"})

    def _collect(self, order: RoundOrder) -> Collected:
        batches = self._batches.take([one.client for one in order.assignments], order.round_index)
        pairs = zip(order.assignments, batches.drawn, strict=True)
        rounds = [self._with_passes(assignment, drawn) for assignment, drawn in pairs]
        # The longest first: they are the critical path, and the first slots go first on the device.
        rounds.sort(key=lambda one: -one.plan.num_steps)
        setup_before = self.context.setup_seconds
        self.context.forget_strangers()
        if not rounds:
            return Collected(Accumulator(order.flat.numel(), self._device), 0, {})
        if not any(one.passes for one in rounds):  # nobody has enough examples for a step, so nothing is to be fast
            return self._eager_engine().collect(order)
        aggregator, carried = self._train_in_room(rounds, batches, order)
        # All is queued: what the next round needs is made beside it, before anybody waits.
        self._batches.prepare(order.ahead, order.round_index + 1)
        totals = self._take_loss_totals()
        counts = Counter(one_pass.role for one in rounds for passes in one.passes for one_pass in passes)
        losses = {role: (totals[role], count) for role, count in counts.items()}
        num_steps = sum(one.plan.num_steps for one in rounds)
        setup_seconds = self.context.setup_seconds - setup_before
        facts = (aggregator.norms, aggregator.refusals)
        return Collected(aggregator.answers, num_steps, losses, setup_seconds, *facts, carried=carried)

    def draw(self, assignment: Assignment, round_index: int) -> ClientRound:
        """Draw a client's round, in the order of the eager engine."""
        return self._with_passes(assignment, self._batches.source.draw(assignment.client, round_index))

    def _with_passes(self, assignment: Assignment, drawn: DrawnBatches) -> ClientRound:
        """Draw the passes that follow a client's mini-batches."""
        steps = range(drawn.plan.num_steps)
        passes = [self.method.passes(assignment, step, drawn.generator) for step in steps]
        return ClientRound(self._with_prior(assignment), drawn, passes)

    def _with_prior(self, assignment: Assignment) -> Assignment:
        """Return a client's assignment with its class prior, where it adds one to its logits."""
        if self._preparation.class_prior is None:
            return assignment
        index = assignment.client.index
        if index not in self._priors:
            places = send(self._examples.shards[index], self._examples.pool.labels)
            labels, dtype = self._examples.pool.labels[places], self.context.precision.weights
            self._priors[index] = self._preparation.class_prior.of(labels, dtype)
        return replace(assignment, constants={**assignment.constants, CLASS_PRIOR: self._priors[index]})

    def _train_in_room(
        self, rounds: Sequence[ClientRound], batches: RoundBatches, order: RoundOrder
    ) -> tuple[Aggregator, Carried]:
        """Train all clients; where memory gives out after all, begin again with half as many at once."""
        while True:
            try:
                return self._train(rounds, batches, order)
            except torch.OutOfMemoryError:
                tried = Arrangement(len(self._slots), max((len(slot.lanes) for slot in self._slots), default=0))
            self._free_slots()
            fewer = tried.halved()
            if fewer is None:
                raise InvalidInput(
                    f"the device's memory is too small for one client with training.batch_size = "
                    f"{self._preparation.batch_size}: lower it, let it take about {self._least_gib(rounds):.1f} GiB "
                    "(engine.memory_gib, where it is set), or set engine.name=eager."
                )
            self._take_arrangement(fewer, len(rounds), fewer.lanes + 1)

    def _train(
        self, rounds: Sequence[ClientRound], batches: RoundBatches, order: RoundOrder
    ) -> tuple[Aggregator, Carried]:
        """Queue the steps of all clients, one of each at a time; a slot that is done takes the next client."""
        aggregator, main = order.policy.aggregator(order.flat, len(rounds)), current_stream(self._device)
        link = order.policy.link(order.round_index)
        rows = batches.rows or self._batches.source.make([one.drawn for one in rounds])
        main.wait_for(batches.ready)
        slots = self._slots_for(rounds)
        ready = main.mark()
        waiting = ((one, rows[one.assignment.client.index]) for one in rounds)
        at_work = {slot: self._work(slot, waiting, order, ready, aggregator, link) for slot in slots}
        held: list[Iterator[bool]] = []
        while at_work:
            for slot in list(at_work):
                goes_on = next(at_work[slot], None)
                if goes_on is None:
                    del at_work[slot]
                elif not goes_on and len(rounds) <= len(slots):
                    held.append(at_work.pop(slot))
        for work in held:
            for _ in work:
                pass
        return aggregator, link.carried

    def _work(
        self,
        slot: Slot,
        waiting: Iterator[tuple[ClientRound, Tensor]],
        order: RoundOrder,
        ready: Mark,
        aggregator: Aggregator,
        link: Link,
    ) -> Iterator[bool]:
        """Train client after client on a slot; yield true after every step that was queued.

        Yield false before taking in what makes the host wait for the device: first, all others' steps should be queued.
        """
        main = current_stream(self._device)
        for one, rows in waiting:
            active, _ = self.context.positions(one.assignment)
            start = _arrived(one.assignment, order.flat, link)
            slot.stream.wait_for(ready if start is order.flat else main.mark())
            slot.load(start, one.assignment)
            for row, passes, count in zip(rows, one.passes, one.plan.rows.tolist(), strict=True):
                short = count if count < self._preparation.batch_size else None
                slot.step(passes, row, active, order.learning_rate, short, self._ranges(active, passes))
                yield True
            whole = one.assignment.slice_map.is_leading and not self.method.counts_in_part
            added_to = aggregator.sums if whole and order.policy.is_plain else None
            if added_to is None:
                yield False
            # On the main stream, one client after another: sums of floats depend on their order.
            main.wait_for(slot.stream.mark())
            if added_to is None:
                self._take_in(one, slot, order, start, aggregator, link)
            else:
                link.count_lossless(one.assignment.slice_map, start.dtype, down=False)
                if order.policy.aggregation.activated_share:
                    self._add_activated(added_to.totals, slot, one)
                else:
                    self._add(added_to.totals, slot, one, start, order.learning_rate, one.assignment.weight)
            ready = main.mark()

    def _add(
        self, totals: Tensor, slot: Slot, one: ClientRound, start: Tensor, learning_rate: float, weight: float
    ) -> None:
        """Add a client's answer to the totals: what it trained, and what only decayed meanwhile."""
        (active, passive), vectors = self.context.positions(one.assignment), self.context.vectors
        vectors.accumulate(totals, slot.weights, active, weight, 1.0)
        for num_steps, ranges in self._decayed(passive, one).items():
            decay = self._sgd.shrinkage(learning_rate, num_steps)
            for begin, end in ranges:
                vectors.accumulate(totals, start, passive[begin:end], weight, decay)

    def _add_activated(self, totals: Tensor, slot: Slot, one: ClientRound) -> None:
        """Add a client's answer to the totals, at each position by the share of its steps that activated it."""
        shares = self._activated(one).mul_(one.assignment.weight)
        totals[1] += shares
        totals[0].addcmul_(shares, slot.weights[: len(shares)].to(shares.dtype))

    def _activated(self, one: ClientRound) -> Tensor:
        """Return the share of a client's steps that activated each position of its slot."""
        return self.context.activated_shares(count_activations(one.passes))

    def _ranges(self, active: Tensor, passes: Sequence[Pass]) -> Ranges | None:
        """Return which of the positions at work a step changes; None: all of them."""
        if self._sgd.unreached == "decay":
            return None
        places = self.context.tensor_ranges(active)
        return joined_ranges(places[name] for name in self.context.reached(passes))

    def _decayed(self, passive: Tensor, one: ClientRound) -> dict[int, Ranges]:
        """Return the positions that only decayed, by how many of a client's steps decayed them."""
        if self._sgd.unreached == "decay":
            return {one.plan.num_steps: [(0, len(passive))]}
        counts = Counter(name for passes in one.passes for name in self.context.reached(passes))
        by_count: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for name, place in self.context.tensor_ranges(passive).items():
            by_count[counts[name]].append(place)
        return {count: joined_ranges(places) for count, places in by_count.items()}

    def _take_in(
        self, one: ClientRound, slot: Slot, order: RoundOrder, start: Tensor, aggregator: Aggregator, link: Link
    ) -> None:
        """Take an answer in as the eager engine does."""
        assignment, slices = one.assignment, one.assignment.slice_map
        sent = slices.gather(order.flat)
        received = sent if start is order.flat else slices.gather(start)
        if self.context.positions(assignment)[1].numel():
            alone = Accumulator(order.flat.numel(), self._device)
            self._add(alone.totals, slot, one, start, order.learning_rate, 1.0)
            trained = slices.gather(alone.sums.to(order.flat.dtype))
        else:
            trained = slot.returned(slices)
        replied = order.policy.reply(assignment, order.round_index, received, trained)
        returned = link.answer(assignment, sent, received, replied)
        counted = self.method.counted(assignment, sent, returned)
        if order.policy.aggregation.activated_share:
            counted = counted_by(leading_map(self.method.network.layout, slices).gather(self._activated(one)), counted)
        aggregator.take(assignment, sent, returned, counted)

    def _slots_for(self, rounds: Sequence[ClientRound]) -> list[Slot]:
        """Return a slot for every client, or as many as the device's memory has room for."""
        wanted = min(len(rounds), MOST_SLOTS)
        if not self._slots:
            self._compile_ahead()
            self._slots.append(self._new_slot())
            if self._arrangement is None:
                steps = [passes for one in rounds for passes in one.passes]
                fullest = self.method.fullest_step()
                steps += [fullest] if fullest else []
                fitting = arrangement_that_fits(self.context, self._slots[0], steps, wanted)
                self._take_arrangement(fitting, wanted, max(map(len, steps)))
        assert self._arrangement is not None
        while len(self._slots) < min(wanted, self._arrangement.slots):
            self._slots.append(self._new_slot())
        return self._slots[:wanted]

    def _take_arrangement(self, arrangement: Arrangement, wanted: int, passes: int) -> None:
        """Take so many slots and lanes from here on; say so where clients have to wait."""
        self._arrangement, self.context.most_lanes = arrangement, arrangement.lanes
        self.context.is_short_of_memory = arrangement.slots < wanted or arrangement.lanes < passes
        if arrangement.slots < wanted:
            message = "the device's memory has room for %d of %d clients at once: the others wait their turn"
            logging.getLogger("fedfeast").warning(message, arrangement.slots, wanted)

    def _least_gib(self, rounds: Sequence[ClientRound]) -> float:
        """Return about how much device memory one client at a time needs."""
        pool, record = self._examples.pool, self._record
        steps = [passes for one in rounds for passes in one.passes]
        blank = torch.zeros(2, *record.input_shape[1:], dtype=torch.int64 if record.takes_tokens else torch.float32)
        held = pool.inputs.nbytes + pool.labels.nbytes
        footprint = estimate_footprint(self.context, steps, blank, record.num_bytes, held)
        return footprint.least() / GIB

    def _free_slots(self) -> None:
        """Let go of all slots when what was queued on them is done."""
        for slot in self._slots:
            slot.finish()
        self._slots.clear()
        torch.cuda.empty_cache()

    def _eager_engine(self) -> EagerEngine:
        parts = (self.method, self._examples, self._preparation, self._sgd, self._seed)
        return EagerEngine(*parts, self.context.precision.weights, self._device)

    def _compile_ahead(self) -> None:
        """Compile all kernels at once where kernels are used; one by one they would take a minute."""
        started = time.perf_counter()
        if self.context.fused_layers and self._device.type == "cuda":
            from fedfeast.engines.graphs.kernels.compiling import compile_ahead

            compile_ahead(self.context)
        self.context.setup_seconds += time.perf_counter() - started

    def _new_slot(self) -> Slot:
        """Return a slot; the first ones, which take the longest clients, go first on the device."""
        return Slot(self.context, self._record, min(0, most_urgent(self._device) + len(self._slots)))

    def _take_loss_totals(self) -> dict[str, float]:
        """Return each role's losses of the round, summed, and start again from zero."""
        sums = [one for slot in self._slots for lane in slot.lanes for one in lane.loss_totals()]
        values = torch.stack([total for _, total in sums]).tolist()
        totals: dict[str, float] = defaultdict(float)
        for (role, total), value in zip(sums, values, strict=True):
            totals[role] += value
            total.zero_()
        return totals


def _arrived(assignment: Assignment, flat: Tensor, link: Link) -> Tensor:
    """Return the global vector as a client sees it: with what arrived where the wire changes what it is sent."""
    if link.wire.downwards.is_lossless:
        link.count_lossless(assignment.slice_map, flat.dtype, down=True)
        return flat
    slices, own = assignment.slice_map, flat.clone()
    slices.scatter_(own, link.deliver(assignment, slices.gather(flat)))
    return own


def _wake_autograd(device: torch.device) -> None:
    """Let autograd's thread for a device begin with a kernel: cuBLAS, if it came first, would warn of no context."""
    if device.type == "cuda":
        leaf = torch.ones(1, device=device, requires_grad=True)
        torch.autograd.grad(leaf.exp(), leaf)
