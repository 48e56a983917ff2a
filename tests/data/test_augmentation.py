"""Crop, flip, their order with RandAugment, and normalisation."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from fedfeast.data.augmentation import (
    Augmentation,
    AugmentationPlan,
    apply_augmentation,
    draw_augmentation,
    normalise,
)
from fedfeast.data.examples import Normalisation
from fedfeast.data.randaugment import apply_randaugment
from fedfeast.errors import InvalidInput

FULL = Augmentation(crop_padding=4, flip=True, randaugment=(2, 6))


def random_images(num_examples: int, channels: int = 3, height: int = 32, width: int = 32) -> Tensor:
    shape = (num_examples, channels, height, width)
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))


def crop_and_flip_one(image: Tensor, shift: tuple[int, int], flip: bool, padding: int) -> Tensor:
    height, width = image.shape[-2:]
    top, left = shift[0] + padding, shift[1] + padding
    cropped = pad(image, (padding, padding, padding, padding))[:, top : top + height, left : left + width]
    return cropped.flip(-1) if flip else cropped


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 28, 28), (3, 20, 36)])
def test_crop_and_flip_equal_padding_and_slicing(channels: int, height: int, width: int) -> None:
    images = random_images(40, channels, height, width)
    plan = draw_augmentation(Augmentation(crop_padding=4, flip=True), 40, np.random.default_rng(1))
    result = apply_augmentation(images, plan)
    for index in range(40):
        row, column = plan.crop_shifts[index]
        flip = bool(plan.flips[index])
        assert torch.equal(result[index], crop_and_flip_one(images[index], (row, column), flip, padding=4))


def test_crop_moves_and_fills_with_black_on_a_case_checked_by_hand() -> None:
    image = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=torch.uint8).view(1, 1, 3, 3)
    down_right = AugmentationPlan(np.array([[1, 1]]), np.array([False]), None)
    flipped = AugmentationPlan(np.array([[1, 1]]), np.array([True]), None)
    assert apply_augmentation(image, down_right).view(3, 3).tolist() == [[5, 6, 0], [8, 9, 0], [0, 0, 0]]
    assert apply_augmentation(image, flipped).view(3, 3).tolist() == [[0, 6, 5], [0, 9, 8], [0, 0, 0]]


def test_randaugment_comes_after_crop_and_flip() -> None:
    images = random_images(60)
    plan = draw_augmentation(FULL, 60, np.random.default_rng(2))
    assert plan.randaugment is not None
    cropped = apply_augmentation(images, AugmentationPlan(plan.crop_shifts, plan.flips, None))
    assert torch.equal(apply_augmentation(images, plan), apply_randaugment(cropped, plan.randaugment))


def test_blocks_of_a_plan_equal_the_whole() -> None:
    images = random_images(50)
    plan = draw_augmentation(FULL, 50, np.random.default_rng(3))
    parts = [slice(0, 17), slice(17, 18), slice(18, 50)]
    in_blocks = torch.cat([apply_augmentation(images[part], plan.select(part)) for part in parts])
    assert torch.equal(in_blocks, apply_augmentation(images, plan))


def test_same_seed_gives_the_same_plan_and_the_input_stays() -> None:
    images = random_images(30)
    before = images.clone()
    first, second = (draw_augmentation(FULL, 30, np.random.default_rng(4)) for _ in range(2))
    assert torch.equal(apply_augmentation(images, first), apply_augmentation(images, second))
    assert torch.equal(images, before)


def test_no_augmentation_is_the_identity() -> None:
    images = random_images(20)
    plan = draw_augmentation(Augmentation(), 20, np.random.default_rng(5))
    assert torch.equal(apply_augmentation(images, plan), images)


def test_draws_cover_all_shifts_and_both_flips() -> None:
    plan = draw_augmentation(Augmentation(crop_padding=2, flip=True), 5_000, np.random.default_rng(6))
    shares = np.stack([(plan.crop_shifts == shift).mean(axis=0) for shift in range(-2, 3)])
    assert np.allclose(shares, 0.2, atol=0.03)
    assert plan.flips.mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    "augmentation",
    [Augmentation(crop_padding=-1), Augmentation(randaugment=(-1, 6)), Augmentation(randaugment=(2, 31))],
)
def test_values_off_the_scale_are_refused(augmentation: Augmentation) -> None:
    with pytest.raises(InvalidInput, match=r"-1|31"):
        draw_augmentation(augmentation, 4, np.random.default_rng(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_normalise_is_pixel_less_mean_over_deviation(dtype: torch.dtype) -> None:
    images, mean, std = random_images(6), (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    result = normalise(images, Normalisation(mean, std), dtype)
    assert result.dtype == dtype
    expected = (images.numpy() / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 0.01}[dtype]
    assert np.abs(result.double().numpy() - expected).max() < tolerance


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_gpu_gives_the_same_bytes_without_waiting_for_it() -> None:
    images = random_images(2_000)
    plan = draw_augmentation(FULL, 2_000, np.random.default_rng(7))
    on_gpu = images.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        augmented = apply_augmentation(on_gpu, plan)
        normalised = normalise(augmented, Normalisation((0.5, 0.4, 0.3), (0.2, 0.25, 0.3)))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = apply_augmentation(images, plan)
    assert torch.equal(augmented.cpu(), expected)
    assert torch.equal(normalised.cpu(), normalise(expected, Normalisation((0.5, 0.4, 0.3), (0.2, 0.25, 0.3))))


@pytest.mark.parametrize("augmentation", [FULL, Augmentation(crop_padding=2)])
def test_plans_one_after_another_are_one_plan(augmentation: Augmentation) -> None:
    images = random_images(9)
    plan = draw_augmentation(augmentation, 9, np.random.default_rng(4))
    rejoined = AugmentationPlan.concatenate([plan.select(slice(0, 4)), plan.select(slice(4, 9))])
    assert (rejoined.randaugment is None) == (augmentation.randaugment is None)
    assert np.array_equal(rejoined.crop_shifts, plan.crop_shifts)
    assert np.array_equal(rejoined.flips, plan.flips)
    assert torch.equal(apply_augmentation(images, rejoined), apply_augmentation(images, plan))


def test_a_crop_filled_by_reflection_on_a_case_checked_by_hand() -> None:
    image = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=torch.uint8).view(1, 1, 3, 3)
    for shift, flip, wanted in (
        ((1, 1), False, [[5, 6, 5], [8, 9, 8], [5, 6, 5]]),
        ((1, 1), True, [[5, 6, 5], [8, 9, 8], [5, 6, 5]]),
        ((-2, 0), False, [[7, 8, 9], [4, 5, 6], [1, 2, 3]]),
        ((0, 2), True, [[1, 2, 3], [4, 5, 6], [7, 8, 9]]),
    ):
        plan = AugmentationPlan(np.array([shift]), np.array([flip]), None, reflects=True)
        assert apply_augmentation(image, plan).view(3, 3).tolist() == wanted


def test_reflection_is_torchs_padding_and_changes_nothing_else_that_is_drawn() -> None:
    images = random_images(40)
    filled = Augmentation(4, True, crop_fill="reflect")
    plan, black = (draw_augmentation(one, 40, np.random.default_rng(9)) for one in (filled, Augmentation(4, True)))
    np.testing.assert_array_equal(plan.crop_shifts, black.crop_shifts)
    np.testing.assert_array_equal(plan.flips, black.flips)
    padded = torch.nn.functional.pad(images.float(), (4, 4, 4, 4), mode="reflect").byte()
    height, width = images.shape[-2:]
    result = apply_augmentation(
        images, AugmentationPlan.concatenate([plan.select(slice(0, 9)), plan.select(slice(9, 40))])
    )
    for index, (row, column) in enumerate(plan.crop_shifts + 4):
        cropped = padded[index, :, row : row + height, column : column + width]
        assert torch.equal(result[index], cropped.flip(-1) if plan.flips[index] else cropped)
