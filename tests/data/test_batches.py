from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedfeast.data import (
    Augmentation,
    Examples,
    Mixing,
    Normalisation,
    Preparation,
    count_steps,
    draw_local_plan,
    make_batches,
)
from fedfeast.data.batches import BLOCK_EXAMPLES, LastBatch, blocks_of_steps, make_stack
from fedfeast.randomness import named_generator

PLAIN = Preparation(4, 1, Augmentation(), None, Normalisation((0.0,), (1.0,)))
RICH = Preparation(8, 2, Augmentation(1, True, (2, 6)), Mixing(), Normalisation((0.5,), (0.25,)))


def examples(count: int) -> Examples:
    generator = named_generator(0, "examples", count)
    images = torch.from_numpy(generator.integers(0, 256, (count, 1, 8, 8)).astype("uint8"))
    return Examples(images, torch.arange(count))


@pytest.mark.parametrize(
    ("examples", "batch", "epochs", "steps"), [(1, 64, 1, 1), (64, 64, 1, 1), (65, 64, 1, 2), (65, 64, 3, 6)]
)
def test_steps_of_a_round(examples: int, batch: int, epochs: int, steps: int) -> None:
    assert count_steps(examples, batch, epochs) == steps


@pytest.mark.parametrize("count", [1, 3, 4, 5, 11])
def test_an_epoch_is_full_batches_topped_up_from_fresh_permutations(count: int) -> None:
    plan = draw_local_plan(count, (8, 8), PLAIN, 0, named_generator(0, count))
    assert plan.order.shape == (-(-count // 4), 4)
    seen = np.bincount(plan.order.reshape(-1), minlength=count)
    assert seen.min() >= 1
    assert seen.max() - seen.min() <= 1, "no example twice before each was seen as often"


@pytest.mark.parametrize(
    ("examples", "last_batch", "least_distinct", "steps"),
    [
        (1, "short", 1, 2), (9, "short", 1, 6), (9, "short", 2, 4), (8, "short", 4, 4), (3, "short", 4, 0),
        (1, "topped-up", 2, 0), (3, "topped-up", 4, 0), (4, "topped-up", 4, 2), (9, "topped-up", 4, 6),
    ],
)  # fmt: skip
def test_batches_of_too_few_examples_are_left_out(
    examples: int, last_batch: LastBatch, least_distinct: int, steps: int
) -> None:
    preparation = replace(PLAIN, local_epochs=2, last_batch=last_batch, least_distinct=least_distinct)
    assert preparation.count_steps(examples) == steps
    plan = draw_local_plan(examples, (8, 8), preparation, 0, named_generator(0))
    assert plan.num_steps == len(plan.rows) == steps
    if last_batch == "short" or examples <= 4:  # a larger shard may meet an example twice in its topped-up batch
        for order, rows in zip(plan.order, plan.rows, strict=True):
            assert len(set(order[:rows].tolist())) >= least_distinct


@pytest.mark.parametrize("count", [1, 3, 5, 8, 11])
def test_short_batches_are_one_permutation(count: int) -> None:
    preparation, held = replace(RICH, batch_size=4, last_batch="short"), examples(count)
    plan = draw_local_plan(count, (8, 8), preparation, 0, named_generator(0, count))
    batches = list(make_batches(held, plan, preparation, torch.float64))
    for epoch in (batches[: len(batches) // 2], batches[len(batches) // 2 :]):
        assert [len(batch.inputs) for batch in epoch] == [4] * (count // 4) + [count % 4] * (count % 4 > 0)
        for labels in ("labels_a", "labels_b"):  # partners are of the same batch too
            assert sorted(torch.cat([getattr(batch, labels) for batch in epoch]).tolist()) == list(range(count))
        for batch in epoch:
            assert len(batch.inputs) == len(batch.labels_a) == len(batch.labels_b)
            assert set(batch.labels_b.tolist()) == set(batch.labels_a.tolist())


def test_partners_among_fewer_rows_have_the_same_chance() -> None:
    preparation = replace(RICH, batch_size=8, local_epochs=1, last_batch="short")
    seen = Counter(
        tuple(draw_local_plan(3, (8, 8), preparation, 0, named_generator(0, one)).mixing.partners[0, :3].tolist())
        for one in range(600)
    )
    assert len(seen) == 6
    assert min(seen.values()) > 60


def test_plain_batches_are_the_examples_themselves() -> None:
    held = examples(10)
    plan = draw_local_plan(10, (8, 8), PLAIN, 0, named_generator(0))
    for order, batch in zip(plan.order, make_batches(held, plan, PLAIN, torch.float64), strict=True):
        torch.testing.assert_close(batch.inputs, held.inputs[order].double() / 255)
        assert batch.labels_a.tolist() == batch.labels_b.tolist() == order.tolist()
        assert float(batch.mix) == 1


def test_the_same_generator_gives_the_same_batches() -> None:
    held = examples(30)
    runs = []
    for _ in range(2):
        plan = draw_local_plan(30, (8, 8), RICH, 3, named_generator(5))
        runs.append(list(make_batches(held, plan, RICH, torch.float32)))
    assert len(runs[0]) == 8
    for one, two in zip(*runs, strict=True):
        assert torch.equal(one.inputs, two.inputs)
        assert torch.equal(one.labels_b, two.labels_b)
        assert torch.equal(one.mix, two.mix)


def test_blocks_do_not_change_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    held = examples(40)
    preparation = Preparation(8, BLOCK_EXAMPLES // 40 + 2, RICH.augmentation, RICH.mixing, RICH.normalisation)
    plan = draw_local_plan(40, (8, 8), preparation, 0, named_generator(0))
    assert plan.order.size > BLOCK_EXAMPLES
    batches = list(make_batches(held, plan, RICH, torch.float32))
    monkeypatch.setattr("fedfeast.data.batches.BLOCK_EXAMPLES", 2 * plan.order.size)
    in_one_block = list(make_batches(held, plan, RICH, torch.float32))
    assert len(batches) == len(in_one_block) == plan.num_steps
    for order, batch, expected in zip(plan.order, batches, in_one_block, strict=True):
        assert batch.labels_a.tolist() == order.tolist()
        assert torch.equal(batch.inputs, expected.inputs)
        assert torch.equal(batch.labels_b, expected.labels_b)
        assert torch.equal(batch.mix, expected.mix)


def test_turns_of_mixing_go_on_over_rounds() -> None:
    kinds = [draw_local_plan(5, (8, 8), RICH, round_index, named_generator(0)).mixing for round_index in (0, 1)]
    assert not np.array_equal(kinds[0].is_cutmix, kinds[1].is_cutmix)


def test_images_are_mixed_in_the_first_rounds_alone() -> None:
    early = replace(RICH, mixing=Mixing(num_rounds=3))
    plans = [draw_local_plan(20, (8, 8), early, index, named_generator(0)) for index in (2, 3)]
    assert [plan.mixing.is_none for plan in plans] == [False, True]
    always = draw_local_plan(20, (8, 8), RICH, 2, named_generator(0))
    np.testing.assert_array_equal(plans[0].mixing.lambdas, always.mixing.lambdas)


@pytest.mark.parametrize(("num_examples", "steps"), [(1, 1), (8, 1), (17, 2), (1000, 10)])
def test_blocks_cover_every_step_once(num_examples: int, steps: int) -> None:
    plan = draw_local_plan(40, (8, 8), RICH, 0, named_generator(0))
    blocks = list(blocks_of_steps(plan, num_examples))
    assert [step for block in blocks for step in range(plan.num_steps)[block]] == list(range(10))
    assert all(block.stop - block.start <= steps for block in blocks)
    assert blocks[0].stop == steps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_stack_holds_the_steps_of_a_range(dtype: torch.dtype) -> None:
    held = examples(30)
    plan = draw_local_plan(30, (8, 8), RICH, 0, named_generator(5))
    batches = list(make_batches(held, plan, RICH, dtype))[2:5]
    stack = make_stack(held, plan, slice(2, 5), RICH.normalisation, dtype)
    assert torch.equal(stack.inputs, torch.stack([batch.inputs for batch in batches]))
    assert torch.equal(stack.labels_a, torch.stack([batch.labels_a for batch in batches]))
    assert torch.equal(stack.labels_b, torch.stack([batch.labels_b for batch in batches]))
    assert torch.equal(stack.mix, torch.stack([batch.mix for batch in batches]))
    assert stack.mix.dtype == torch.promote_types(dtype, torch.float32), "a rounded share would weigh losses wrongly"
