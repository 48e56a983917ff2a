"""Each operation against Pillow's, used as torchvision uses it on PIL images."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from fedfeast.data.randaugment import (
    GEOMETRIC,
    OPERATIONS,
    SIGNED,
    apply_operation,
    apply_randaugment,
    draw_randaugment,
    magnitude_of,
)
from fedfeast.randomness import named_generator


def pictures(channels: int, side: int, count: int = 8) -> torch.Tensor:
    """Half noise, half smooth pictures with shapes, in several brightness ranges."""
    generator = named_generator(0, "pictures", channels, side)
    noise = generator.integers(0, 256, (count // 2, channels, side, side))
    y, x = np.mgrid[:side, :side] / side
    smooth = []
    for _ in range(count - count // 2):
        waves = [np.sin(generator.uniform(1, 9) * x + generator.uniform(1, 9) * y + generator.uniform(0, 6)) for _ in range(channels)]
        low, high = np.sort(generator.integers(0, 256, 2))
        smooth.append(low + (np.stack(waves) + 1) / 2 * (high - low))
    return torch.from_numpy(np.concatenate([noise, np.stack(smooth)]).astype(np.uint8))


def by_pillow(image: Image.Image, operation: str, strength: float) -> Image.Image:
    match operation:
        case "shear_x":
            return image.transform(image.size, Image.Transform.AFFINE, (1, strength, 0, 0, 1, 0))
        case "shear_y":
            return image.transform(image.size, Image.Transform.AFFINE, (1, 0, 0, strength, 1, 0))
        case "translate_x":
            return image.transform(image.size, Image.Transform.AFFINE, (1, 0, -int(strength), 0, 1, 0))
        case "translate_y":
            return image.transform(image.size, Image.Transform.AFFINE, (1, 0, 0, 0, 1, -int(strength)))
        case "rotate":
            return image.rotate(strength)
        case "brightness":
            return ImageEnhance.Brightness(image).enhance(1 + strength)
        case "color":
            return ImageEnhance.Color(image).enhance(1 + strength)
        case "contrast":
            return ImageEnhance.Contrast(image).enhance(1 + strength)
        case "sharpness":
            return ImageEnhance.Sharpness(image).enhance(1 + strength)
        case "posterize":
            return ImageOps.posterize(image, int(strength))
        case "solarize":
            return ImageOps.solarize(image, strength)  # type: ignore[arg-type]  # torchvision hands on a float too
        case "autocontrast":
            return ImageOps.autocontrast(image)
        case "equalize":
            return ImageOps.equalize(image)
        case _:
            return image


def pillow_batch(images: torch.Tensor, operation: str, strength: float) -> np.ndarray:
    results = []
    for array in images.permute(0, 2, 3, 1).numpy():
        image = Image.fromarray(array if array.shape[2] == 3 else array[:, :, 0])
        results.append(np.asarray(by_pillow(image, operation, strength)).reshape(array.shape))
    return np.stack(results).transpose(0, 3, 1, 2).astype(int)


@pytest.mark.parametrize("magnitude", [0, 1, 6, 9, 15, 22, 30])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 28), (3, 64), (1, 8)])
def test_every_operation_equals_pillows(channels: int, side: int, operation: str, magnitude: int) -> None:
    images = pictures(channels, side)
    for sign in (1, -1) if operation in SIGNED else (1,):
        strength = sign * magnitude_of(operation, magnitude, side, side)
        ours = apply_operation(images, operation, np.full(len(images), strength)).numpy().astype(int)
        theirs = pillow_batch(images, operation, strength)
        difference = np.abs(ours - theirs)
        if operation in GEOMETRIC:
            assert (difference > 0).mean() <= 0.005
        else:
            assert difference.max() <= 1


def test_the_31_bin_scale() -> None:
    assert magnitude_of("shear_x", 6, 32, 32) == pytest.approx(0.06)
    assert magnitude_of("translate_x", 6, 32, 64) == 2
    assert magnitude_of("translate_y", 6, 32, 64) == 5
    assert magnitude_of("rotate", 6, 32, 32) == pytest.approx(6.0)
    assert magnitude_of("contrast", 6, 32, 32) == pytest.approx(0.18)
    assert [magnitude_of("posterize", one, 32, 32) for one in (0, 3, 4, 6, 30)] == [8, 8, 7, 7, 4]
    assert magnitude_of("solarize", 6, 32, 32) == pytest.approx(204.0)


def test_examples_do_not_see_each_other() -> None:
    images = pictures(3, 32, count=40)
    plan = draw_randaugment(40, 2, 9, named_generator(0, "plan"))
    together = apply_randaugment(images, plan)
    for example in range(40):
        chosen = slice(example, example + 1)
        assert torch.equal(apply_randaugment(images[chosen], plan.select(chosen)), together[chosen])


def test_the_input_stays_as_it_was() -> None:
    images = pictures(3, 32)
    before = images.clone()
    apply_randaugment(images, draw_randaugment(8, 3, 30, named_generator(0)))
    assert torch.equal(images, before)


def test_operations_and_signs_are_drawn_evenly() -> None:
    plan = draw_randaugment(14_000, 2, 6, named_generator(0, "even"))
    counts = np.bincount(plan.operations.ravel(), minlength=14)
    assert np.abs(counts / 28_000 - 1 / 14).max() < 0.01
    assert abs(plan.signs.mean()) < 0.03
