from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedfeast.data import (
    Augmentation,
    Batch,
    Examples,
    Mixing,
    Normalisation,
    Preparation,
    ShardedExamples,
    draw_local_plan,
    make_batches,
)
from fedfeast.data.batches import LocalPlan
from fedfeast.data.round_batches import ALIGNMENT, BatchRecord, make_round
from fedfeast.population import Shards
from fedfeast.randomness import named_generator

BATCH = 4
COUNTS = (5, 1, 12, 9)
CLIENTS = (2, 0, 3)
RICH = Preparation(BATCH, 2, Augmentation(1, True, (2, 6)), Mixing(), Normalisation((0.5, 0.4, 0.3), (0.25, 0.2, 0.3)))
OTHER = replace(RICH, augmentation=Augmentation(2, True, (2, 6), "reflect"), mixing=Mixing(0.4, 1.0, "coin"))
PLAIN = Preparation(BATCH, 1, Augmentation(), None, RICH.normalisation)


def sharded() -> ShardedExamples:
    generator = named_generator(0, "pool")
    images = torch.from_numpy(generator.integers(0, 256, (sum(COUNTS), 3, 6, 7)).astype("uint8"))
    offsets = np.concatenate([[0], np.cumsum(COUNTS)])
    return ShardedExamples(
        Examples(images, torch.arange(sum(COUNTS))), Shards(generator.permutation(sum(COUNTS)), offsets)
    )


def plans(preparation: Preparation) -> list[LocalPlan]:
    return [
        draw_local_plan(COUNTS[client], (6, 7), preparation, 1, named_generator(0, "plan", client))
        for client in CLIENTS
    ]


def one_by_one(preparation: Preparation, dtype: torch.dtype) -> list[Batch]:
    return [
        batch
        for client, plan in zip(CLIENTS, plans(preparation), strict=True)
        for batch in make_batches(sharded().of_client(client), plan, preparation, dtype)
    ]


def at_once(preparation: Preparation, dtype: torch.dtype) -> list[Batch]:
    record = BatchRecord((BATCH, 3, 6, 7), dtype)
    rows = make_round(sharded(), CLIENTS, plans(preparation), record, preparation.normalisation)
    assert rows.shape == (sum(plan.num_steps for plan in plans(preparation)), record.num_bytes)
    return [record.batch(row) for row in rows]


def assert_equal(batches: Sequence[Batch], expected: Sequence[Batch]) -> None:
    for one, other in zip(batches, expected, strict=True):
        assert one.inputs.dtype == other.inputs.dtype
        assert one.mix.dtype == other.mix.dtype
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.labels_a, other.labels_a)
        assert torch.equal(one.labels_b, other.labels_b)
        assert torch.equal(one.mix, other.mix)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("preparation", [RICH, OTHER, PLAIN], ids=["rich", "other", "plain"])
def test_a_rounds_rows_equal_the_batches_of_each_client(preparation: Preparation, dtype: torch.dtype) -> None:
    assert_equal(at_once(preparation, dtype), one_by_one(preparation, dtype))


@pytest.mark.parametrize("num_examples", [1, 2 * BATCH, 5 * BATCH])
def test_blocks_do_not_change_the_rows(monkeypatch: pytest.MonkeyPatch, num_examples: int) -> None:
    monkeypatch.setattr("fedfeast.data.round_batches.BLOCK_EXAMPLES", num_examples)
    assert_equal(at_once(RICH, torch.float32), one_by_one(RICH, torch.float32))


def test_bfloat16_images_are_the_rounded_ones() -> None:
    rounded, whole = at_once(PLAIN, torch.bfloat16), at_once(PLAIN, torch.float32)
    for one, other in zip(rounded, whole, strict=True):
        assert torch.equal(one.inputs, other.inputs.bfloat16())
        assert one.mix.dtype == torch.float32


def test_mixed_bfloat16_images_are_close_and_their_shares_whole() -> None:
    for one, other in zip(at_once(RICH, torch.bfloat16), at_once(RICH, torch.float32), strict=True):
        torch.testing.assert_close(one.inputs.float(), other.inputs, rtol=2**-7, atol=2**-6)
        assert torch.equal(one.mix, other.mix)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 3, 6, 7), (3, 1, 5, 5), (2, 1, 1, 1)])
def test_a_batch_is_views_of_its_row(shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    record = BatchRecord(shape, dtype)
    rows = torch.zeros(3, record.num_bytes, dtype=torch.uint8)
    together, last = record.batch(rows), record.batch(rows[2])
    assert last.inputs.shape == shape
    assert last.inputs.is_contiguous(memory_format=torch.channels_last)
    assert last.mix.shape == ()
    fields = ("inputs", "labels_a", "labels_b", "mix")
    storage = rows.untyped_storage().data_ptr()
    for number, name in enumerate(fields, start=1):
        assert getattr(last, name).untyped_storage().data_ptr() == storage
        assert (getattr(last, name).data_ptr() - storage) % ALIGNMENT == 0
        getattr(together, name)[2].fill_(number)
    for number, name in enumerate(fields, start=1):
        assert bool((getattr(last, name) == number).all()), "no view reaches into another's bytes"
    assert not rows[:2].any()
