"""RandAugment against Pillow, used the way torchvision uses it on Pillow images."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from fedfeast.data import randaugment
from fedfeast.data.randaugment import (
    ENHANCEMENTS,
    GEOMETRIC_OPERATIONS,
    OPERATIONS,
    SIGNED_OPERATIONS,
    RandAugmentPlan,
    apply_randaugment,
    draw_randaugment,
    magnitude_value,
)
from fedfeast.errors import InvalidInput

SHAPES = [(3, 32, 32), (1, 28, 28), (3, 24, 40)]


def random_images(num_examples: int, shape: tuple[int, int, int], seed: int = 0) -> Tensor:
    levels = np.random.default_rng(seed).integers(0, 256, (num_examples, *shape), dtype=np.uint8)
    return torch.from_numpy(levels)


def smooth_images(num_examples: int, shape: tuple[int, int, int], seed: int = 0) -> Tensor:
    """Return waves of low frequency with a little noise, each over its own range of levels, like photographs."""
    generator = np.random.default_rng(seed)
    channels, height, width = shape
    y, x = np.mgrid[:height, :width] / width
    frequencies = generator.uniform(-8, 8, (2, num_examples, channels, 1, 1))
    phases = generator.uniform(0, 6, (num_examples, channels, 1, 1))
    waves = np.sin(frequencies[0] * x + frequencies[1] * y + phases)
    centre, reach = generator.uniform(90, 160, phases.shape), generator.uniform(10, 110, phases.shape)
    levels = centre + reach * waves + generator.normal(0, 3, waves.shape)
    return torch.from_numpy(levels.clip(0, 255).astype(np.uint8))


def flat_images(shape: tuple[int, int, int]) -> Tensor:
    return torch.tensor([0, 7, 255], dtype=torch.uint8)[:, None, None, None].expand(3, *shape).contiguous()


def pillow_operation(image: Image.Image, operation: str, magnitude: float) -> Image.Image:
    coefficients = {
        "ShearX": (1, magnitude, 0, 0, 1, 0),
        "ShearY": (1, 0, 0, magnitude, 1, 0),
        "TranslateX": (1, 0, -int(magnitude), 0, 1, 0),
        "TranslateY": (1, 0, 0, 0, 1, -int(magnitude)),
    }
    if operation in coefficients:
        return image.transform(image.size, Image.Transform.AFFINE, coefficients[operation])
    if operation in ENHANCEMENTS:
        enhancement: type[ImageEnhance._Enhance] = getattr(ImageEnhance, operation)
        return enhancement(image).enhance(1 + magnitude)  # type: ignore[call-arg]
    match operation:
        case "Rotate":
            return image.rotate(magnitude)
        case "Posterize":
            return ImageOps.posterize(image, int(magnitude))
        case "Solarize":
            return ImageOps.solarize(image, magnitude)  # type: ignore[arg-type]
        case "AutoContrast":
            return ImageOps.autocontrast(image)
        case "Equalize":
            return ImageOps.equalize(image)
    return image


def through_pillow(image: Tensor, operation: str, magnitude: float) -> NDArray[np.uint8]:
    """Return one image (channels, height, width) after Pillow's own operation."""
    channels, height, width = image.shape
    levels = image.permute(1, 2, 0).numpy()
    converted = Image.fromarray(levels[:, :, 0] if channels == 1 else levels)
    changed = np.asarray(pillow_operation(converted, operation, magnitude))
    return np.moveaxis(changed.reshape(height, width, channels), -1, 0)


def one_operation(images: Tensor, operation: str, magnitudes: NDArray[np.float64]) -> Tensor:
    """Return the images after one operation, with a signed magnitude per example in the operation's own unit."""
    if operation in GEOMETRIC_OPERATIONS:
        return randaugment._resample(images, randaugment._output_to_input(operation, magnitudes, *images.shape[-2:]))
    return randaugment._COLOUR_OPERATIONS[operation](images, magnitudes)


def differences_from_pillow(
    images: Tensor, operation: str, magnitude: int, signs: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Apply one operation of a plan to every image; return how far that is from Pillow, level by level."""
    value = magnitude_value(operation, magnitude, *images.shape[-2:])
    signed = value * (signs if operation in SIGNED_OPERATIONS else np.ones(len(images)))
    expected = np.stack(
        [through_pillow(image, operation, float(one)) for image, one in zip(images, signed, strict=True)]
    )
    places = np.full((len(images), 1), OPERATIONS.index(operation))
    actual = apply_randaugment(images, RandAugmentPlan(places, signs[:, None], magnitude))
    assert actual.dtype == torch.uint8
    differences: NDArray[np.int64] = np.abs(actual.numpy().astype(np.int64) - expected)
    return differences


@pytest.mark.parametrize("magnitude", [0, 1, 6, 13, 30])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_matches_pillow(operation: str, shape: tuple[int, int, int], magnitude: int) -> None:
    images = torch.cat((random_images(4, shape), smooth_images(8, shape), flat_images(shape)))
    signs = np.where(np.arange(len(images)) % 2, 1, -1)
    differences = differences_from_pillow(images, operation, magnitude, signs)
    if operation in GEOMETRIC_OPERATIONS:
        assert np.mean(differences > 0) <= 0.005
    else:
        assert differences.max() <= 1


@pytest.mark.parametrize("operation", ["AutoContrast", "Equalize"])
def test_histogram_operations_match_pillow_on_skewed_images(operation: str) -> None:
    # Few levels, or all but one pixel at one level: the steps of equalize become small, zero or uneven.
    skewed = torch.full((3, 3, 32, 32), 200, dtype=torch.uint8)
    skewed[0, :, 0, 0] = 10
    skewed[1, :, :16] = 31
    skewed[2, :, 5] = 255
    images = torch.cat((skewed, random_images(2, (3, 32, 32)) // 64, random_images(4, (3, 32, 32)).clamp(80, 90)))
    assert differences_from_pillow(images, operation, 6, np.ones(len(images), dtype=np.int64)).max() <= 1


def test_magnitudes_follow_the_31_bin_scale_of_torchvision() -> None:
    at_6 = {name: magnitude_value(name, 6, 32, 64) for name in OPERATIONS}
    assert at_6["ShearX"] == at_6["ShearY"] == pytest.approx(0.06)
    assert (at_6["TranslateX"], at_6["TranslateY"]) == (5, 2)  # 5.80 and 2.90 pixels, truncated
    assert at_6["Rotate"] == pytest.approx(6)
    assert at_6["Brightness"] == at_6["Sharpness"] == pytest.approx(0.18)
    assert (at_6["Posterize"], at_6["Solarize"]) == (7, 204)
    assert at_6["Identity"] == at_6["AutoContrast"] == at_6["Equalize"] == 0
    bits = [int(magnitude_value("Posterize", magnitude, 32, 32)) for magnitude in range(31)]
    assert bits == [8] * 4 + [7] * 8 + [6] * 7 + [5] * 8 + [4] * 4


def test_solarize_inverts_the_threshold_and_above() -> None:
    levels = torch.tensor([203, 204, 205], dtype=torch.uint8).view(1, 1, 1, 3)
    assert one_operation(levels, "Solarize", np.array([204.0])).flatten().tolist() == [203, 51, 50]
    assert one_operation(levels, "Solarize", np.array([204.5])).flatten().tolist() == [203, 204, 50]


def test_rotation_by_a_quarter_turn_is_exact() -> None:
    images = random_images(2, (3, 32, 32))
    rotated = one_operation(images, "Rotate", np.array([90.0, -90.0]))
    assert torch.equal(rotated[0], torch.rot90(images[0], 1, (1, 2)))
    assert torch.equal(rotated[1], torch.rot90(images[1], -1, (1, 2)))


@pytest.mark.parametrize("shape", SHAPES)
def test_batch_equals_one_example_at_a_time(shape: tuple[int, int, int]) -> None:
    images = torch.cat((random_images(60, shape), smooth_images(60, shape)))
    plan = draw_randaugment(len(images), 3, 11, np.random.default_rng(1))
    together = apply_randaugment(images, plan)
    one = [slice(index, index + 1) for index in range(len(images))]
    alone = torch.cat([apply_randaugment(images[part], plan.select(part)) for part in one])
    assert torch.equal(together, alone)


def test_plan_chains_the_operations_in_order() -> None:
    image = smooth_images(1, (3, 32, 32))
    chain = ("Rotate", "Equalize", "ShearY")
    operations = np.array([[OPERATIONS.index(name) for name in chain]])
    result = apply_randaugment(image, RandAugmentPlan(operations, np.array([[-1, -1, 1]]), magnitude=20))
    expected = image[0]
    for name, value in zip(chain, (-20.0, 0.0, 0.2), strict=True):
        expected = torch.from_numpy(through_pillow(expected, name, value).copy())
    assert torch.equal(result[0], expected)


def test_same_plan_gives_the_same_images_and_leaves_the_input_alone() -> None:
    images = random_images(50, (3, 32, 32))
    before = images.clone()
    plan = draw_randaugment(50, 2, 6, np.random.default_rng(3))
    assert torch.equal(apply_randaugment(images, plan), apply_randaugment(images, plan))
    assert torch.equal(images, before)


def test_memory_format_does_not_matter() -> None:
    images = smooth_images(50, (3, 32, 32))
    plan = draw_randaugment(50, 2, 6, np.random.default_rng(4))
    channels_last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(apply_randaugment(images, plan), apply_randaugment(channels_last, plan))


@pytest.mark.parametrize("operation", [*SIGNED_OPERATIONS, "Identity", "Posterize", "Solarize"])
def test_magnitude_zero_is_the_identity(operation: str) -> None:
    # Below 255: on torchvision's scale, solarize at bin 0 has threshold 255 and turns white into black.
    images = random_images(20, (3, 32, 32)).clamp(max=254)
    operations = np.full((20, 1), OPERATIONS.index(operation))
    plan = RandAugmentPlan(operations, np.where(np.arange(20) % 2, 1, -1)[:, None], magnitude=0)
    assert torch.equal(apply_randaugment(images, plan), images)


def test_draw_covers_all_operations_and_both_signs_evenly() -> None:
    plan = draw_randaugment(14_000, 2, 6, np.random.default_rng(5))
    counts = np.bincount(plan.operations.ravel(), minlength=len(OPERATIONS))
    assert len(counts) == 14
    assert np.abs(counts - 2_000).max() < 250
    assert set(np.unique(plan.signs)) == {-1, 1}
    assert abs(plan.signs.mean()) < 0.03


def test_no_operations_and_no_examples_are_fine() -> None:
    images = random_images(3, (1, 28, 28))
    assert torch.equal(apply_randaugment(images, draw_randaugment(3, 0, 6, np.random.default_rng(0))), images)
    nothing = apply_randaugment(images[:0], draw_randaugment(0, 2, 6, np.random.default_rng(0)))
    assert nothing.shape == (0, 1, 28, 28)


@pytest.mark.parametrize(("num_ops", "magnitude"), [(-1, 6), (2, -1), (2, 31)])
def test_values_off_the_scale_are_refused(num_ops: int, magnitude: int) -> None:
    with pytest.raises(InvalidInput, match=r"-1|31"):
        draw_randaugment(4, num_ops, magnitude, np.random.default_rng(0))


def test_plans_one_after_another_are_one_plan() -> None:
    plan = draw_randaugment(9, 3, 6, np.random.default_rng(5))
    rejoined = RandAugmentPlan.concatenate(
        [plan.select(slice(0, 4)), plan.select(slice(4, 5)), plan.select(slice(5, 9))]
    )
    assert np.array_equal(rejoined.operations, plan.operations)
    assert np.array_equal(rejoined.signs, plan.signs)
    assert rejoined.magnitude == plan.magnitude
