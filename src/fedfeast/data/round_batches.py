"""All mini-batches of a round, prepared at once; each is one row of bytes, so that one copy brings it all."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor

from fedfeast.data.augmentation import AugmentationPlan
from fedfeast.data.batches import Batch, LocalPlan, blocks_of_steps, make_stack
from fedfeast.data.examples import Normalisation, ShardedExamples
from fedfeast.data.mixing import MixPlan

BLOCK_EXAMPLES = 16384  # prepared at once: bounds the memory of a large cohort
ALIGNMENT = 256  # bytes


@dataclass(frozen=True)
class BatchRecord:
    """How a mini-batch lies in a row of bytes: channels-last images, two rows of labels, the share."""

    image_shape: tuple[int, int, int, int]  # (batch, channels, height, width)
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """The length of a row."""
        return self._offsets[3] + ALIGNMENT

    def batch(self, rows: Tensor) -> Batch:
        """Return one row, or several (rows, bytes), as a mini-batch of views."""
        batch, channels, height, width = self.image_shape
        images, labels_a, labels_b, mix = self._offsets
        lead = rows.shape[:-1]
        pixels = self._view(rows, images, prod(self.image_shape), self.dtype)
        pixels = pixels.view(*lead, batch, height, width, channels).movedim(-1, -3)
        shares = self._view(rows, mix, 1, torch.promote_types(self.dtype, torch.float32))
        return Batch(
            pixels,
            self._view(rows, labels_a, batch, torch.int64),
            self._view(rows, labels_b, batch, torch.int64),
            shares.view(lead),
        )

    @property
    def _offsets(self) -> tuple[int, int, int, int]:
        labels_bytes = _aligned(self.image_shape[0] * 8)
        first = _aligned(prod(self.image_shape) * self.dtype.itemsize)
        return 0, first, first + labels_bytes, first + 2 * labels_bytes

    def _view(self, rows: Tensor, offset: int, count: int, dtype: torch.dtype) -> Tensor:
        return rows[..., offset : offset + count * dtype.itemsize].view(dtype)


def make_round(
    examples: ShardedExamples,
    clients: Sequence[int],
    plans: Sequence[LocalPlan],
    record: BatchRecord,
    normalisation: Normalisation,
) -> Tensor:
    """Return the rows (steps of all clients, bytes) of a round, client by client, on the examples' device."""
    together = LocalPlan(
        np.concatenate([examples.shards[client][plan.order] for client, plan in zip(clients, plans, strict=True)]),
        AugmentationPlan.concatenate([plan.augmentation for plan in plans]),
        MixPlan.concatenate([plan.mixing for plan in plans]),
    )
    rows = torch.empty(together.num_steps, record.num_bytes, dtype=torch.uint8, device=examples.pool.labels.device)
    for steps in blocks_of_steps(together, BLOCK_EXAMPLES):
        stack, places = (
            make_stack(examples.pool, together, steps, normalisation, record.dtype),
            record.batch(rows[steps]),
        )
        places.images.copy_(stack.images)
        places.labels_a.copy_(stack.labels_a)
        places.labels_b.copy_(stack.labels_b)
        places.mix.copy_(stack.mix)
    return rows


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
