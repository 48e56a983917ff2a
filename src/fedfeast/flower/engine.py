"""The fleet as an engine: a round's slices go out to the nodes and come back; answers are added up as they arrive."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from flwr.app import ConfigRecord, Message, RecordDict
from torch import Tensor

from fedfeast.federation import Accumulator, Assignment, Collected, Engine, Method, TooFewAnswers
from fedfeast.flower.fleet import POLL_SECONDS, Fleet, error_of
from fedfeast.flower.wire import Unreadable, from_json, pack_assignment, pack_slice, to_json, unpack_slice, wire_dtype
from fedfeast.runs.assembly import Federation

LOG = logging.getLogger("fedfeast.fleet")


@dataclass(frozen=True, eq=False)
class Answer:
    """What a client sent back, its own words about it included."""

    weights: Tensor  # of the client's layout
    num_examples: int
    num_steps: int
    losses: dict[str, tuple[float, int]]


Check = Callable[[Assignment, Tensor, Answer], str | None]  # what was sent and came back -> why it is refused


def check_finite(assignment: Assignment, sent: Tensor, answer: Answer) -> str | None:
    """Refuse values that are not finite: one of them would spoil a position for good."""
    return None if bool(torch.isfinite(answer.weights).all()) else "values that are not finite"


@dataclass
class _Tally:
    """What has come back of a round so far."""

    answers: Accumulator
    num_steps: int = 0
    losses: dict[str, tuple[float, int]] = field(default_factory=dict)
    answered: list[int] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # client -> why its part is missing

    def add(self, answer: Answer) -> None:
        self.num_steps += answer.num_steps
        for role, (total, count) in answer.losses.items():
            before = self.losses.get(role, (0.0, 0))
            self.losses[role] = (before[0] + total, before[1] + count)


class FleetEngine(Engine):
    """Runs a round on the nodes of a fleet."""

    def __init__(
        self,
        method: Method,
        fleet: Fleet,
        dtype: torch.dtype,
        check: Check = check_finite,
        accumulator: Callable[[int], Accumulator] = Accumulator,
    ) -> None:
        self.method, self._fleet, self._dtype = method, fleet, dtype
        self._check, self._accumulator = check, accumulator
        self._wire = wire_dtype(fleet.settings.wire, dtype)
        self._terms: ConfigRecord = to_json(fleet.terms.to_json())

    def collect(
        self, flat: Tensor, assignments: Sequence[Assignment], round_index: int, learning_rate: float
    ) -> Collected:
        """Send every client its slice; add up what comes back before the deadline."""
        flat = flat.cpu()
        tally, settings = _Tally(self._accumulator(flat.numel())), self._fleet.settings
        under_way: dict[str, Assignment] = {}
        for assignment in assignments:
            self._send(flat, assignment, round_index, learning_rate, under_way, tally)
        deadline = time.monotonic() + settings.deadline_seconds
        while under_way and time.monotonic() < deadline:
            for letter, reply in self._fleet.post.arrivals():
                expected = under_way.pop(letter.message_id, None)
                if expected is None:
                    self._fleet.hear(letter, reply)
                else:
                    self._take(flat, expected, reply, tally)
                del reply  # before the next one is pulled
            if under_way:
                time.sleep(POLL_SECONDS)
        for assignment in under_way.values():
            tally.failed[assignment.client.name] = f"no answer within {settings.deadline_seconds:g} s"
        for name, reason in tally.failed.items():
            LOG.warning("round %d goes on without %s: %s", round_index + 1, name, reason)
        if len(tally.answered) < min(settings.least_answers, len(assignments)):
            LOG.warning(
                "round %d has %d of the %d answers it needs and is tried again",
                round_index + 1,
                len(tally.answered),
                settings.least_answers,
            )
            raise TooFewAnswers
        notes: dict[str, Any] = {"answered": sorted(tally.answered)}
        if tally.failed:
            notes["failed"] = tally.failed
        return Collected(tally.answers, tally.num_steps, tally.losses, notes=notes)

    def _send(
        self,
        flat: Tensor,
        assignment: Assignment,
        round_index: int,
        learning_rate: float,
        under_way: dict[str, Assignment],
        tally: _Tally,
    ) -> None:
        node = self._fleet.node_of(assignment.client)
        part, arrays = pack_assignment(assignment)
        order = {"round_index": round_index, "learning_rate": learning_rate, "assignment": part}
        content = RecordDict(
            {
                "terms": self._terms,
                "order": to_json(order),
                "assignment": arrays,
                "weights": pack_slice(assignment.slice_map, assignment.slice_map.gather(flat), self._wire),
            }
        )
        # Twice the deadline: a late answer is still taken off the SuperLink, and only then dropped.
        patience = 2 * self._fleet.settings.deadline_seconds
        letter = None if node is None else self._fleet.post.send(node, "train", round_index, content, patience)
        if letter is None:
            tally.failed[assignment.client.name] = "it cannot be reached"
        else:
            under_way[letter.message_id] = assignment

    def _take(self, flat: Tensor, assignment: Assignment, reply: Message, tally: _Tally) -> None:
        """Check one answer and add it, or note why it is missing."""
        sent = self._sent(flat, assignment)
        try:
            answer = self._read(assignment, reply)
            reason = self._check(assignment, sent, answer)
        except (Unreadable, KeyError, TypeError, ValueError) as error:
            reason = str(error)
        if reason is not None:
            tally.failed[assignment.client.name] = reason
            return
        counted = self.method.counted(assignment, sent, answer.weights)
        tally.answers.add(assignment.slice_map, answer.weights, assignment.weight, counted)
        tally.answered.append(assignment.client.index)
        tally.add(answer)

    def _sent(self, flat: Tensor, assignment: Assignment) -> Tensor:
        """Return the vector that the client received, in the precision it was sent in."""
        return assignment.slice_map.gather(flat).to(self._wire).to(self._dtype)

    def _read(self, assignment: Assignment, reply: Message) -> Answer:
        if reply.has_error():
            raise Unreadable(error_of(reply))
        report = from_json(reply.content, "report")
        if "problem" in report:
            raise Unreadable(str(report["problem"]))
        weights = unpack_slice(assignment.slice_map, reply.content.array_records["weights"], self._wire, self._dtype)
        losses = {str(role): (float(total), int(count)) for role, (total, count) in report["losses"].items()}
        return Answer(weights, int(report["num_examples"]), int(report["num_steps"]), losses)


@dataclass(frozen=True)
class FleetWorkforce:
    """The clients of a fleet, as the training loop sees them."""

    fleet: Fleet

    def engine(self, federation: Federation) -> Engine:
        """Return the fleet as an engine."""
        return FleetEngine(federation.method, self.fleet, federation.dtype)

    def muster(self, federation: Federation, round_index: int) -> Federation:
        """Wait for enough clients; return the federation with those that have joined and are there."""
        present = self.fleet.gather(round_index)
        return federation.with_roster(self.fleet.roster, present)
