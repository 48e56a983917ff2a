"""The mini-batches of a round: drawn and made, those of the next round while this one runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedfeast.data import Preparation, ShardedExamples, draw_local_plan
from fedfeast.data.batches import LocalPlan
from fedfeast.data.round_batches import BatchRecord, make_round
from fedfeast.engines.graphs.streams import Mark, new_stream
from fedfeast.federation import Client
from fedfeast.randomness import named_generator


@dataclass(frozen=True, eq=False)
class DrawnBatches:
    """A client's mini-batches, every random choice drawn; the generator goes on with the choices of its passes."""

    client: Client
    plan: LocalPlan
    generator: np.random.Generator


@dataclass(frozen=True)
class BatchSource:
    """What mini-batches are made from, and how."""

    examples: ShardedExamples
    preparation: Preparation
    record: BatchRecord
    seed: int

    def draw(self, client: Client, round_index: int) -> DrawnBatches:
        """Draw a client's mini-batches, in the order of the eager engine."""
        generator = named_generator(self.seed, "round", round_index, "client", client.index)
        shape = self.examples.pool.shape
        plan = draw_local_plan(client.num_examples, shape, self.preparation, round_index, generator)
        return DrawnBatches(client, plan, generator)

    def make(self, drawn: Sequence[DrawnBatches]) -> dict[int, Tensor]:
        """Return the rows of bytes (steps, bytes) of every client, by its index."""
        drawn = sorted(drawn, key=lambda one: -one.plan.num_steps)  # the longest is the first to be asked for
        clients, plans = [one.client.index for one in drawn], [one.plan for one in drawn]
        rows = make_round(self.examples, clients, plans, self.record, self.preparation.normalisation)
        starts = np.cumsum([0, *(plan.num_steps for plan in plans)]).tolist()
        return {client: rows[start:end] for client, start, end in zip(clients, starts, starts[1:], strict=False)}


@dataclass(frozen=True, eq=False)
class RoundBatches:
    """The mini-batches of a round's clients: drawn, and made where somebody had the time."""

    round_index: int
    drawn: tuple[DrawnBatches, ...]
    rows: Mapping[int, Tensor] | None = None  # by client
    ready: Mark = None  # when the rows are there

    def are_of(self, clients: Sequence[Client], round_index: int) -> bool:
        """Return whether they are those of a round."""
        return (self.round_index, [one.client for one in self.drawn]) == (round_index, list(clients))


class BatchesAhead:
    """Prepares the mini-batches of the round to come, on a stream beside those that train."""

    def __init__(self, source: BatchSource, device: torch.device) -> None:
        self.source, self._stream = source, new_stream(device)
        self._prepared: RoundBatches | None = None

    def prepare(self, clients: Sequence[Client], round_index: int) -> None:
        """Draw and make the mini-batches of a round to come; without the memory for it, it will have to make them."""
        drawn = tuple(self.source.draw(client, round_index) for client in clients)
        self._prepared = RoundBatches(round_index, drawn)
        if drawn:
            try:
                with self._stream.entered():
                    rows = self.source.make(drawn)
            except torch.OutOfMemoryError:
                return
            self._prepared = RoundBatches(round_index, drawn, rows, self._stream.mark())

    def take(self, clients: Sequence[Client], round_index: int) -> RoundBatches:
        """Return the mini-batches of a round, drawn now unless they were prepared; nobody else gets the same ones.

        Rows that were made ahead lie in memory of another stream: hold them until the round is done.
        """
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.are_of(clients, round_index):
            return prepared
        return RoundBatches(round_index, tuple(self.source.draw(client, round_index) for client in clients))
