"""All mini-batches of a round, prepared at once; each is one row of bytes, so that one copy brings it all."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fedfeast.data.batches import Batch, LocalPlan, Preparation, blocks_of_steps, make_stack
from fedfeast.data.examples import Examples, Normalisation, ShardedExamples
from fedfeast.data.tasks import CLASSIFICATION, Task

BLOCK_EXAMPLES = 16384  # prepared at once: bounds the memory of a large cohort
ALIGNMENT = 256  # bytes


@dataclass(frozen=True)
class BatchRecord:
    """How a mini-batch lies in a row of bytes: inputs (images channels-last), two rows of labels, share, draw."""

    input_shape: tuple[int, ...]  # (batch, channels, height, width) of images
    dtype: torch.dtype  # of activations
    label_shape: tuple[int, ...] = ()  # of one example
    label_dtype: torch.dtype = torch.int64
    takes_tokens: bool = False  # inputs are ids, not numbers
    draws: bool = False
    task: Task = CLASSIFICATION

    @classmethod
    def of(cls, examples: Examples, preparation: Preparation, dtype: torch.dtype) -> "BatchRecord":
        """Return the record of mini-batches of such examples, prepared so."""
        shape, labels = (preparation.batch_size, *examples.inputs.shape[1:]), examples.labels
        tokens = preparation.normalisation is None
        labels_are = (tuple(labels.shape[1:]), labels.dtype)
        return cls(shape, dtype, *labels_are, tokens, preparation.draws, preparation.task)

    @property
    def num_bytes(self) -> int:
        """The length of a row."""
        return self._offsets[-1] + ALIGNMENT

    def batch(self, rows: Tensor) -> Batch:
        """Return one row, or several (rows, bytes), as a mini-batch of views."""
        inputs, labels_a, labels_b, mix, draw = self._offsets
        lead = rows.shape[:-1]
        numbers = self._view(rows, inputs, prod(self.input_shape), self.input_dtype)
        if len(self.input_shape) == 4:
            batch, channels, height, width = self.input_shape
            numbers = numbers.view(*lead, batch, height, width, channels).movedim(-1, -3)
        else:
            numbers = numbers.view(*lead, *self.input_shape)
        labels = (self._view(rows, start, self._num_labels, self.label_dtype) for start in (labels_a, labels_b))
        first, second = (one.view(*lead, self.input_shape[0], *self.label_shape) for one in labels)
        shares = self._view(rows, mix, 1, torch.promote_types(self.dtype, torch.float32))
        drawn = self._view(rows, draw, 1, torch.int64).view(lead) if self.draws else None
        return Batch(numbers, first, second, shares.view(lead), self.task, drawn)

    @property
    def input_dtype(self) -> torch.dtype:
        """The type that the network takes."""
        return torch.int64 if self.takes_tokens else self.dtype

    @property
    def _num_labels(self) -> int:
        return self.input_shape[0] * prod(self.label_shape)

    @property
    def _offsets(self) -> tuple[int, int, int, int, int]:
        labels_bytes = _aligned(self._num_labels * self.label_dtype.itemsize)
        first = _aligned(prod(self.input_shape) * self.input_dtype.itemsize)
        mix = first + 2 * labels_bytes
        return 0, first, first + labels_bytes, mix, mix + ALIGNMENT

    def _view(self, rows: Tensor, offset: int, count: int, dtype: torch.dtype) -> Tensor:
        return rows[..., offset : offset + count * dtype.itemsize].view(dtype)


def make_round(
    examples: ShardedExamples,
    clients: Sequence[int],
    plans: Sequence[LocalPlan],
    record: BatchRecord,
    normalisation: Normalisation | None,
) -> Tensor:
    """Return the rows (steps of all clients, bytes) of a round, client by client, on the examples' device."""
    orders = [examples.shards[client][plan.order] for client, plan in zip(clients, plans, strict=True)]
    together = LocalPlan.concatenate(plans, orders)
    rows = torch.empty(together.num_steps, record.num_bytes, dtype=torch.uint8, device=examples.pool.labels.device)
    for steps in blocks_of_steps(together, BLOCK_EXAMPLES):
        stack, places = (
            make_stack(examples.pool, together, steps, normalisation, record.dtype),
            record.batch(rows[steps]),
        )
        places.inputs.copy_(stack.inputs)
        places.labels_a.copy_(stack.labels_a)
        places.labels_b.copy_(stack.labels_b)
        places.mix.copy_(stack.mix)
        if places.draw is not None and stack.draw is not None:
            places.draw.copy_(stack.draw)
    return rows


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
