"""The fleet as an engine: a round's slices go out to the nodes and come back; answers are taken in as they arrive."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from torch import Tensor

from fedfeast.data import count_steps
from fedfeast.engines.eager import draw_passes
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import ClientsValidation, Validation
from fedfeast.evaluation.fairness.participation import LATE
from fedfeast.federation import (
    Activations,
    Aggregator,
    Assignment,
    Carried,
    Collected,
    Engine,
    LocalSgd,
    Method,
    Pace,
    RoundOrder,
    TooFewAnswers,
    Wire,
    WireMemory,
    activated_shares,
    count_activations,
    counted_by,
)
from fedfeast.federation.aggregation.privacy import Privacy
from fedfeast.federation.aggregation.refusals import norm_of
from fedfeast.federation.wire.link import Delivery, deliver, merged_answer
from fedfeast.federation.wire.memory import ClientMemory, Kept
from fedfeast.flower.evaluation.asking import FleetEvaluator
from fedfeast.flower.fleet import Fleet, error_of
from fedfeast.flower.memory.node_memory import sha256_of_values
from fedfeast.flower.messages import Report, Unreadable, from_json, num_bytes, one_line, to_json
from fedfeast.flower.wire import pack_arrays, pack_assignment, pack_slice, unpack_arrays, unpack_slice, wire_dtype
from fedfeast.recipes.building import build_pace, build_privacy, build_sgd, build_wire
from fedfeast.runs.assembly import Federation

LOG = logging.getLogger("fedfeast.fleet")
DEVIATIONS = 8  # by which the norm of noise may lie above its mean
SLACK = 1.01  # steps are taken in floating point


@dataclass(frozen=True, eq=False)
class Answer:
    """What a client sent back, its own words about it included."""

    weights: Tensor  # of the client's layout
    num_examples: int
    num_steps: int
    losses: dict[str, tuple[float, int]]


@dataclass(frozen=True, eq=False)
class _Asked:
    """A client that a slice was sent to, and the round that sent it."""

    assignment: Assignment
    order: RoundOrder  # with the vector that the slice was taken from


@dataclass
class _Round:
    """A round at work: what goes out, and what has come back so far."""

    order: RoundOrder
    aggregator: Aggregator
    num_steps: int = 0
    losses: dict[str, tuple[float, int]] = field(default_factory=dict)
    answered: list[int] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)  # of these answers: how many merges ago they were asked for
    returned: int = 0  # values that came back
    failed: dict[str, str] = field(default_factory=dict)  # client -> why it sent no answer
    carried: Carried = field(default_factory=Carried)
    seconds: dict[str, float] = field(default_factory=dict)  # client -> from question to answer

    @property
    def number(self) -> int:
        """The round's number, from 1."""
        return self.order.round_index + 1

    def age(self, asked: _Asked) -> int:
        """Return how many merges ago a client was asked."""
        return self.order.round_index - asked.order.round_index

    def note(self, asked: _Asked, answer: Answer) -> None:
        """Count an answer that was taken in."""
        self.answered.append(asked.assignment.client.index)
        self.ages.append(self.age(asked))
        self.num_steps += answer.num_steps
        for role, (total, count) in answer.losses.items():
            before = self.losses.get(role, (0.0, 0))
            self.losses[role] = (before[0] + total, before[1] + count)


@dataclass(frozen=True)
class Reach:
    """How far a client's training can lead at all: by the recipe's rate, clipping and steps, and its noise."""

    sgd: LocalSgd
    batch_size: int
    local_epochs: int
    privacy: Privacy | None = None
    link: Wire = field(default_factory=Wire)

    def of(self, assignment: Assignment, sent: Tensor, learning_rate: float, wire: torch.dtype) -> float:
        """Return the largest norm that an honest change can have."""
        steps = count_steps(assignment.client.num_examples, self.batch_size, self.local_epochs)
        start = norm_of(assignment.slice_map.pack(sent)) * (1 + self.link.downwards.rounding)
        farthest = self.sgd.farthest(learning_rate, steps, start)
        if self.privacy is not None:
            noise = self.privacy.noise_deviation * (sqrt(assignment.slice_map.payload) + DEVIATIONS)
            farthest = min(farthest, self.privacy.clip_norm) + noise
        rounding = torch.finfo(wire).eps * (start + farthest)
        return (SLACK * farthest + 2 * rounding) * self.link.stretch


Activated = Callable[[Assignment, int], Activations]  # what the steps of a client's round pass through


class FleetEngine(Engine):
    """Runs a round on the nodes of a fleet."""

    def __init__(
        self,
        method: Method,
        fleet: Fleet,
        dtype: torch.dtype,
        reach: "Reach",
        pace: Pace,
        activated: Activated | None = None,
    ) -> None:
        self.method, self._fleet, self._dtype, self._reach, self._pace = method, fleet, dtype, reach, pace
        self._activated = activated  # where answers count by it
        self._asked_at: dict[str, float] = {}  # client -> by time.monotonic()
        self._under_way: dict[str, _Asked] = {}  # by message
        self._unfinished: _Round | None = None  # a buffered round that had too few answers: they still count
        if pace.is_buffered:
            fleet.kept_answers = {}
        self._wire = wire_dtype(fleet.settings.wire, dtype)
        # What clients said that they hold. Choice: in memory alone; a server that starts again sends whole slices.
        self._held = WireMemory()
        self._terms: ConfigRecord = to_json(fleet.terms.to_json())

    def at_work(self) -> list[Assignment]:
        """Return what clients still work on; in synchronous rounds nobody counts on them any more."""
        kept = self._fleet.kept_answers
        if kept is None:
            return []
        return [asked.assignment for message, asked in self._under_way.items() if message not in kept]

    def collect(self, order: RoundOrder) -> Collected:
        """Send every client its slice; take in what comes back in time. Local noise is the clients' own."""
        order = replace(order, flat=order.flat.cpu())
        this, self._unfinished = self._unfinished or self._begin(order), None
        try:
            if order.policy.privacy is not None:
                asked = [one.client.index for one in order.assignments]
                self._fleet.folder.append_released(order.round_index, asked)
            for assignment in order.assignments:
                self._send(_Asked(assignment, order), this)
            self._receive(this)
            if order.policy.central is None:
                # To draw again until enough answer would make who answers likelier to be drawn than is counted.
                self._require_enough(this)
        except TooFewAnswers:
            self._give_up(this)
            raise
        except BaseException:
            this.aggregator.close()
            raise
        self._held = self._held.after({}, order.policy.wire.most_bytes)
        notes: dict[str, Any] = {"answered": sorted(this.answered), "answer_seconds": this.seconds}
        if self._pace.is_buffered:
            notes |= {"answered": this.answered, "ages": this.ages, "returned_parameters": this.returned}
        if this.failed:
            notes["failed"] = this.failed
        aggregator = this.aggregator
        return Collected(
            *(aggregator.answers, this.num_steps, this.losses, 0.0, aggregator.norms, aggregator.refusals, notes),
            carried=this.carried,
        )

    def _begin(self, order: RoundOrder) -> _Round:
        """Return a round that nothing has come back of."""
        expected, of_ages = self._pace.buffer or len(order.assignments), self._pace.is_buffered
        return _Round(order, order.policy.aggregator(order.flat, expected, checked=True, of_ages=of_ages))

    def _give_up(self, this: _Round) -> None:
        """Leave a round with too few answers to the next attempt: a buffered one keeps those that it has."""
        if self._pace.is_buffered:
            self._unfinished = this
        else:
            this.aggregator.close()

    def _send(self, asked: _Asked, this: _Round) -> None:
        assignment = asked.assignment
        node = self._fleet.node_of(assignment.client)
        part, arrays = pack_assignment(assignment)
        weights, about = self._pack_weights(assignment, asked.order)
        order = {
            "round_index": asked.order.round_index,
            "learning_rate": asked.order.learning_rate,
            "assignment": part,
            **about,
        }
        content = RecordDict(
            {
                "terms": self._terms,
                "order": to_json(order),
                "assignment": arrays,
                "weights": weights,
            }
        )
        # Twice the deadline: a late answer is still taken off the SuperLink, and only then dropped.
        patience = self._fleet.settings.deadline_seconds * (1 if self._pace.is_buffered else 2)
        pending = (
            None
            if node is None
            else self._fleet.transport.send(node, "train", asked.order.round_index, content, patience)
        )
        if pending is None:
            this.failed[assignment.client.name] = "it cannot be reached"
        else:
            self._under_way[pending.message_id] = asked
            self._asked_at[assignment.client.name] = time.monotonic()
            this.carried += Carried(bytes_down=num_bytes(content))

    def _pack_weights(self, assignment: Assignment, order: RoundOrder) -> tuple[ArrayRecord, dict[str, str]]:
        """Return a client's weights for its message, and the hashes by which it tells them from what it holds."""
        if order.policy.wire.is_lossless:
            return pack_slice(assignment.slice_map, assignment.slice_map.gather(order.flat), self._wire), {}
        delivery = self._delivery(assignment, order)
        if not order.policy.wire.down_deltas:
            return pack_arrays(delivery.arrays), {}
        about = {"weights_sha256": sha256_of_values(delivery.received)}
        held = self._held.of(assignment.client.index).held
        if delivery.is_delta and held is not None:
            about["base_sha256"] = sha256_of_values(held.values)
        return pack_arrays(delivery.arrays), about

    def _delivery(self, assignment: Assignment, order: RoundOrder) -> Delivery:
        """Return what a client is sent, or was: every time the same."""
        policy, held = order.policy, self._held.of(assignment.client.index).held
        sent = assignment.slice_map.gather(order.flat)
        return deliver(policy.wire, assignment, sent, held, policy.seed, order.round_index)

    def _note_held(self, assignment: Assignment, held: Kept | None) -> None:
        """Remember what a client holds; nothing where it does not say so."""
        # Without a limit: what is under way is made again when its answer comes, from what was held when it was sent.
        self._held = self._held.after({assignment.client.index: ClientMemory(held=held)}, inf)

    def _receive(self, this: _Round) -> None:
        """Take in answers until all are there or the deadline has passed; buffered, until there are enough of them."""

        def take(asked: _Asked, reply: Message) -> None:
            self._take(asked, reply, this)

        if self._pace.buffer is not None:
            wanted = self._pace.buffer
            missing = self._fleet.receive_first(self._under_way, take, lambda: len(this.answered) >= wanted)
        else:
            self._fleet.receive(self._under_way, take)
            missing, self._under_way = list(self._under_way.values()), {}
        for asked in missing:
            seconds = self._fleet.settings.deadline_seconds
            this.failed[asked.assignment.client.name] = f"{LATE} {seconds:g} s"
        for name, reason in this.failed.items():
            LOG.warning("round %d goes on without %s: %s", this.number, name, reason)

    def _require_enough(self, this: _Round) -> None:
        least = self._fleet.settings.least_answers
        asked = len(this.order.assignments)
        if len(this.answered) >= (least if self._pace.is_buffered else min(least, asked)):
            return
        message = "round %d has %d of the %d answers it needs and is tried again"
        LOG.warning(message, this.number, len(this.answered), least)
        raise TooFewAnswers

    def _take(self, asked: _Asked, reply: Message, this: _Round) -> None:
        """Take an answer in, or note why it is missing or refused."""
        assignment, order = asked.assignment, asked.order
        try:
            if reply.has_error():
                this.failed[assignment.client.name] = error_of(reply)
                return
            this.carried += Carried(bytes_up=num_bytes(reply.content))
            report = from_json(reply.content, "report")
            if report.get("needs_whole") is True and self._held.of(assignment.client.index).held is not None:
                LOG.info("%s no longer holds its last weights and is sent whole ones", assignment.client.name)
                self._note_held(assignment, None)
                self._send(asked, this)
                return
            if "problem" in report:
                this.failed[assignment.client.name] = one_line(report["problem"])
                return
            this.returned += assignment.slice_map.payload
            answer = self._read(assignment, reply, Report.read(report, "report"), order)
        except Unreadable as error:
            this.aggregator.refuse(assignment, str(error))
            return
        # What it was sent, not what there is now: the change of a late answer is against the vector that it left from.
        sent = self._sent(assignment, order.flat)
        counted = self.method.counted(assignment, sent, answer.weights)
        if self._activated is not None:
            # Drawn again from the seed: how much an answer counts is not its client's word.
            activations = self._activated(assignment, order.round_index)
            layout = assignment.slice_map.layout
            shares = activated_shares(self.method.network, layout, activations, order.flat.device)
            counted = counted_by(shares, counted)
        farthest = self._reach.of(assignment, sent, order.learning_rate, self._wire)
        facts = (counted, answer.num_examples, farthest, self._pace.factor(this.age(asked)))
        if this.aggregator.take(assignment, sent, answer.weights, *facts) is None:
            this.note(asked, answer)
            name = assignment.client.name
            if name in self._asked_at:  # once: a question has one answer
                this.seconds[name] = round(time.monotonic() - self._asked_at.pop(name), 3)

    def _sent(self, assignment: Assignment, flat: Tensor) -> Tensor:
        """Return the vector that the client received, in the precision it was sent in."""
        return assignment.slice_map.gather(flat).to(self._wire).to(self._dtype)

    def _read(self, assignment: Assignment, reply: Message, said: Report, order: RoundOrder) -> Answer:
        records = reply.content.array_records
        if "weights" not in records:
            raise Unreadable("it has no weights")
        if order.policy.wire.is_lossless:
            weights = unpack_slice(assignment.slice_map, records["weights"], self._wire, self._dtype)
        else:
            weights = self._read_packed(assignment, records["weights"], said, order)
        return Answer(weights, said.num_examples, said.num_steps, said.loss_totals())

    def _read_packed(self, assignment: Assignment, record: ArrayRecord, said: Report, order: RoundOrder) -> Tensor:
        """Return the vector to merge of an answer that came in fewer bytes."""
        slices, wire = assignment.slice_map, order.policy.wire
        arrived = unpack_arrays(slices, record, wire.upwards, self._dtype)
        sent = received = slices.pack(slices.gather(order.flat))
        if wire.down_deltas or wire.upwards.is_lossless:  # else nobody needs to know what the client received
            received = self._delivery(assignment, order).received
        if wire.down_deltas:
            holds = said.held_sha256 == sha256_of_values(received)
            self._note_held(assignment, Kept.of(slices, received) if holds else None)
        return slices.unpack(merged_answer(wire, sent, received, arrived))


@dataclass(frozen=True)
class FleetClients:
    """The clients of a fleet, as the training loop sees them."""

    fleet: Fleet

    def engine(self, federation: Federation) -> Engine:
        """Return the fleet as an engine."""
        recipe, preparation = federation.recipe, federation.preparation
        sgd, privacy = build_sgd(recipe, federation.method), build_privacy(recipe)
        reach = Reach(sgd, preparation.batch_size, preparation.local_epochs, privacy, build_wire(recipe))
        method, shape, seed = federation.method, recipe.data.facts.input_shape, recipe.seed

        def activated(assignment: Assignment, round_index: int) -> Activations:
            return count_activations(draw_passes(method, assignment, shape, preparation, seed, round_index))

        by_activation = activated if recipe.aggregation.activated_share else None
        return FleetEngine(method, self.fleet, federation.dtype, reach, build_pace(recipe), by_activation)

    def available(self, federation: Federation, round_index: int) -> Federation:
        """Wait for enough clients; return the federation with those that have joined and are there."""
        present = self.fleet.gather(round_index)
        return federation.with_roster(self.fleet.roster, present)

    def validation(self, federation: Federation) -> Validation:
        """Return the server's own examples, or the clients where the recipe says so."""
        recipe, method, own = federation.recipe, federation.method, federation.validation
        if not isinstance(own, ClientsValidation):
            return own
        if method.cost_follows_weights:
            raise InvalidInput(
                f"method.name = {recipe.method_name!r} decides by its weights what a network costs, and a fleet's "
                "clients evaluate slices of known cost: set evaluation.by=server."
            )
        shared = (own.task, own.scored_by, own.blank.cpu())
        return FleetEvaluator(*shared, self.fleet, recipe.data.facts, federation.dtype, recipe.evaluation.client_share)
