"""Simulated clients of unequal speed: who answers when, and merges of the first answers (docs/decisions/038)."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfeast.data import Preparation
from fedfeast.federation import (
    Accumulator,
    Answers,
    Assignment,
    ChangeAccumulator,
    Collected,
    Engine,
    Pace,
    RoundOrder,
    State,
)
from fedfeast.federation.pacing import Task, begin_tasks, end_tasks, training_macs
from fedfeast.federation.wire.link import Carried

# A round's assignments once more: from its index, the method's memory then, the vector sent and the clients asked.
Replan = Callable[[int, State, Tensor, Sequence[int]], Sequence[Assignment]]


@dataclass(frozen=True, eq=False)
class _Version:
    """A vector that clients are at work on, and what they were told with it."""

    sent: Tensor
    learning_rate: float
    method_state: State
    assignments: Mapping[int, Assignment]  # of all who were asked, by client, with the weights that answers have


class PacedEngine(Engine):
    """Lets another engine train the clients that a merge takes in, each from the vector that it was sent."""

    def __init__(self, inner: Engine, pace: Pace, speeds: NDArray[np.float64], preparation: Preparation) -> None:
        self.method, self._inner, self._pace = inner.method, inner, pace
        self._speeds, self._preparation = speeds, preparation  # MACs a second, by client
        self._clock, self._tasks = 0.0, list[Task]()
        self._versions: dict[int, _Version] = {}  # by the round that asked

    def at_work(self) -> Sequence[Assignment]:
        """Return what clients still work on that were asked in earlier rounds."""
        return [self._versions[task.round_index].assignments[task.client] for task in self._tasks]

    def collect(self, order: RoundOrder) -> Collected:
        """Ask the order's clients; train those whose answers come in before the next merge, and take them in."""
        self._ask(order)
        ended, self._tasks = end_tasks(self._tasks, self._pace)
        self._clock = max([self._clock, *(task.ends_at for task in ended)])
        answered = [task for task in ended if task.in_time]
        by_version: dict[int, set[int]] = defaultdict(set)
        for task in answered:
            by_version[task.round_index].add(task.client)
        parts = {number: self._train(order, number, clients) for number, clients in sorted(by_version.items())}
        answers = self._merge(order, parts)
        collected = _added_up(answers, list(parts.values()), self._notes(order, ended))
        at_work = {task.round_index for task in self._tasks}
        self._versions = {number: one for number, one in self._versions.items() if number in at_work}
        return collected

    def work(self) -> State:
        """Return the clock, who is at work until when, and the vectors that they were sent."""
        tasks, at_work = self._tasks, self.at_work()
        state = {
            "clock": torch.tensor(self._clock, dtype=torch.float64),
            "clients": torch.tensor([task.client for task in tasks], dtype=torch.int64),
            "rounds": torch.tensor([task.round_index for task in tasks], dtype=torch.int64),
            "ends_at": torch.tensor([task.ends_at for task in tasks], dtype=torch.float64),
            "in_time": torch.tensor([task.in_time for task in tasks], dtype=torch.bool),
            "weights": torch.tensor([one.weight for one in at_work], dtype=torch.float64),
        }
        for number, version in self._versions.items():
            state[f"sent.{number}"] = version.sent
            state[f"rate.{number}"] = torch.tensor(version.learning_rate, dtype=torch.float64)
            state[f"cohort.{number}"] = torch.tensor(list(version.assignments), dtype=torch.int64)
            state |= {f"method.{number}.{name}": one for name, one in version.method_state.items()}
        return state

    def resume(self, work: State, replan: Replan, device: torch.device) -> None:
        """Go on with what was under way when a run was saved; assignments are planned as they were then."""
        if not work:
            return
        self._clock = float(work["clock"])
        columns = (work[name].tolist() for name in ("clients", "rounds", "ends_at", "in_time"))
        self._tasks = [Task(*row) for row in zip(*columns, strict=True)]
        weights = dict(zip(self._tasks, work["weights"].tolist(), strict=True))
        for number in sorted({task.round_index for task in self._tasks}):
            memory, sent = _beginning(work, f"method.{number}."), work[f"sent.{number}"].to(device)
            planned = replan(number, memory, sent, work[f"cohort.{number}"].tolist())
            assignments = {one.client.index: one for one in planned}
            for task in self._tasks:
                if task.round_index == number:
                    assignments[task.client] = replace(assignments[task.client], weight=weights[task])
            self._versions[number] = _Version(sent, float(work[f"rate.{number}"]), memory, assignments)

    def _ask(self, order: RoundOrder) -> None:
        """Send the present vector to those who are asked now: each is done after its work, at its speed."""
        if not order.assignments:
            return
        assignments = {one.client.index: one for one in order.assignments}
        self._versions[order.round_index] = _Version(order.flat, order.learning_rate, order.method_state, assignments)
        seconds = {
            index: training_macs(self.method, one, self._preparation) / float(self._speeds[index])
            for index, one in assignments.items()
        }
        self._tasks = self._tasks + begin_tasks(seconds, order.round_index, self._clock, self._pace)

    def _train(self, order: RoundOrder, number: int, clients: Set[int]) -> Collected:
        """Let the clients train that were asked in a round, as they would have then."""
        version = self._versions[number]
        # In the order of the plan, not of the clock: sums of floats depend on it.
        own = [one for client, one in version.assignments.items() if client in clients]
        then = replace(order, flat=version.sent, round_index=number, learning_rate=version.learning_rate)
        return self._inner.collect(replace(then, assignments=own, ahead=()))

    def _merge(self, order: RoundOrder, parts: Mapping[int, Collected]) -> Answers:
        """Return the answers to all versions as changes of the present one; to it alone, as they are."""
        if list(parts) == [order.round_index]:
            return parts[order.round_index].answers
        changes = ChangeAccumulator(order.flat.numel(), order.flat.device)
        for number, part in parts.items():
            version, factor = self._versions[number], self._pace.factor(order.round_index - number)
            changes.add_cohort(_as_sums(part.answers, version.sent), version.sent, factor)
        return changes

    def _notes(self, order: RoundOrder, ended: Sequence[Task]) -> dict[str, Any]:
        """Return what the round's line of metrics has to say of the clock and of who answered."""
        tasks = [(task, self._versions[task.round_index].assignments[task.client]) for task in ended]
        answered = [(task, one) for task, one in tasks if task.in_time]
        notes: dict[str, Any] = {
            "clock_seconds": round(self._clock, 6),
            "answered": [task.client for task, _ in answered],
        }
        if self._pace.is_buffered:
            notes["ages"] = [order.round_index - task.round_index for task, _ in answered]
            notes["returned_parameters"] = sum(one.slice_map.payload for _, one in answered)
        late = f"no answer within {self._pace.deadline_seconds:g} s"
        if failed := {one.client.name: late for task, one in tasks if not task.in_time}:
            notes["failed"] = failed
        return notes


def _as_sums(answers: Answers, sent: Tensor) -> Accumulator:
    """Return answers to one vector as weighted sums; those that waited for each other count as one answer."""
    if isinstance(answers, Accumulator):
        return answers
    merged, sums = answers.merged_with(sent), Accumulator(sent.numel(), sent.device)
    sums.weights.add_(answers.answered())
    sums.sums.add_(merged * sums.weights)
    return sums


def _added_up(answers: Answers, parts: Sequence[Collected], notes: Mapping[str, Any]) -> Collected:
    """Return what the clients of several versions sent back, as that of one round."""
    losses: dict[str, tuple[float, int]] = {}
    for part in parts:
        for role, (total, count) in part.losses.items():
            before = losses.get(role, (0.0, 0))
            losses[role] = (before[0] + total, before[1] + count)
    return Collected(
        answers,
        sum(part.num_steps for part in parts),
        losses,
        sum(part.setup_seconds for part in parts),
        [norm for part in parts for norm in part.norms],
        [refusal for part in parts for refusal in part.refusals],
        notes,
        sum((part.carried for part in parts), Carried()),
    )


def _beginning(tensors: State, prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
