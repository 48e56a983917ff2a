"""The whole augmentation against torchvision's own operations on Pillow images, with the same drawn choices."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fedfeast.data.augmentation import (
    Augmentation,
    AugmentationPlan,
    apply_augmentation,
    draw_augmentation,
    normalise,
)
from fedfeast.data.examples import Normalisation
from fedfeast.data.mixing import Mixing, MixPlan, apply_mixing, draw_mixing
from fedfeast.data.randaugment import GEOMETRIC_OPERATIONS, OPERATIONS, RandAugmentPlan, apply_randaugment
from fedfeast.data.reading.catalogue import OFFICIAL
from fedfeast.randomness import named_generator

pytestmark = pytest.mark.gpu

SHAPES = [(3, 32, 32), (3, 64, 64), (1, 28, 28)]
# torchvision turns a slope into degrees and back, so that a pixel's centre may fall on the other side of an edge.
MOVED_SHARE = 0.005


@pytest.fixture(scope="module")
def torchvision() -> Any:
    for part in ("autoaugment", "functional", "v2"):
        pytest.importorskip(f"torchvision.transforms.{part}")
    return pytest.importorskip("torchvision")


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def photographs(count: int, shape: tuple[int, int, int]) -> Tensor:
    """Return smooth waves with a little noise, each over its own range of levels."""
    generator = named_generator(count, "photographs")
    y, x = np.mgrid[: shape[1], : shape[2]] / shape[2]
    slopes = generator.uniform(-8, 8, (2, count, shape[0], 1, 1))
    centres = generator.uniform(90, 160, (count, shape[0], 1, 1))
    reaches = generator.uniform(10, 110, centres.shape)
    levels = centres + reaches * np.sin(slopes[0] * x + slopes[1] * y) + generator.normal(0, 3, (count, *shape))
    return torch.from_numpy(levels.clip(0, 255).astype(np.uint8))


def to_pillow(image: Tensor) -> Image.Image:
    levels = image.permute(1, 2, 0).numpy()
    return Image.fromarray(levels[:, :, 0] if levels.shape[2] == 1 else levels)


def randaugmented(torchvision: Any, image: Image.Image, names: list[str], signs: list[int], magnitude: int) -> Any:
    """Apply torchvision's operations with its own scale of magnitudes, and our draw of names and signs."""
    autoaugment = torchvision.transforms.autoaugment
    height, width = image.height, image.width
    scale = autoaugment.RandAugment()._augmentation_space(31, (height, width))
    nearest = torchvision.transforms.InterpolationMode.NEAREST
    for name, sign in zip(names, signs, strict=True):
        bins, is_signed = scale[name]
        value = float(bins[magnitude]) if bins.ndim else 0.0
        value *= sign if is_signed else 1
        image = autoaugment._apply_op(image, name, value, interpolation=nearest, fill=None)
    return image


def augmented(torchvision: Any, image: Tensor, plan: AugmentationPlan, index: int, padding: int) -> NDArray[np.uint8]:
    """Return one image (channels, height, width) after torchvision's crop, flip and RandAugment."""
    functional = torchvision.transforms.functional
    channels, height, width = image.shape
    rows, columns = (int(shift) for shift in plan.crop_shifts[index])
    changed = functional.pad(to_pillow(image), [padding], fill=0)
    changed = functional.crop(changed, padding + rows, padding + columns, height, width)
    changed = functional.hflip(changed) if plan.flips[index] else changed
    if plan.randaugment is not None:
        names = [OPERATIONS[number] for number in plan.randaugment.operations[index]]
        signs = plan.randaugment.signs[index].tolist()
        changed = randaugmented(torchvision, changed, names, signs, plan.randaugment.magnitude)
    return np.asarray(changed).reshape(height, width, channels).transpose(2, 0, 1)


def test_our_operations_are_torchvisions(torchvision: Any) -> None:
    scale = torchvision.transforms.autoaugment.RandAugment()._augmentation_space(31, (32, 32))
    assert set(scale) == set(OPERATIONS)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("magnitude", [1, 6, 17, 30])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation(torchvision: Any, operation: str, magnitude: int, shape: tuple[int, int, int]) -> None:
    images = photographs(20, shape)
    signs = np.where(np.arange(20) % 2, 1, -1)[:, None]
    plan = RandAugmentPlan(np.full((20, 1), OPERATIONS.index(operation)), signs, magnitude)
    ours = apply_randaugment(images.to(device()), plan).cpu().numpy()
    for index, image in enumerate(images):
        changed = randaugmented(torchvision, to_pillow(image), [operation], signs[index].tolist(), magnitude)
        theirs = np.asarray(changed).reshape(*shape[1:], shape[0]).transpose(2, 0, 1)
        different = np.mean(ours[index] != theirs)
        assert different <= (MOVED_SHARE if operation in GEOMETRIC_OPERATIONS else 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_crop_and_flip_are_equal_byte_for_byte(torchvision: Any, shape: tuple[int, int, int]) -> None:
    images = photographs(64, shape)
    plan = draw_augmentation(Augmentation(crop_padding=4, flip=True), 64, named_generator(0, "plan"))
    ours = apply_augmentation(images.to(device()), plan).cpu().numpy()
    theirs = np.stack([augmented(torchvision, image, plan, index, 4) for index, image in enumerate(images)])
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("shape", SHAPES)
def test_crop_flip_and_randaugment_together(torchvision: Any, shape: tuple[int, int, int]) -> None:
    images = photographs(256, shape)
    plan = draw_augmentation(Augmentation(4, True, (2, 6)), 256, named_generator(1, "plan"))
    assert plan.randaugment is not None
    ours = apply_augmentation(images.to(device()), plan).cpu().numpy()
    theirs = np.stack([augmented(torchvision, image, plan, index, 4) for index, image in enumerate(images)])
    different = (ours != theirs).mean(axis=(1, 2, 3))
    geometric = [OPERATIONS.index(name) for name in GEOMETRIC_OPERATIONS]
    moves = np.isin(plan.randaugment.operations, geometric).any(axis=1)
    assert different[~moves].max() == 0
    # After a moved pixel an operation on the histogram may change many levels by a little.
    assert np.mean(different > 0) < 0.05
    assert different.mean() < MOVED_SHARE


def test_normalised_like_torchvision(torchvision: Any) -> None:
    images, official = photographs(8, (3, 32, 32)), OFFICIAL["cifar100"].normalisation
    assert official is not None
    functional = torchvision.transforms.functional
    scaled = torch.stack([functional.to_tensor(to_pillow(image)) for image in images])
    theirs = functional.normalize(scaled, list(official.mean), list(official.deviation))
    ours = normalise(images.to(device()), official).cpu()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)


def test_mixed_like_torchvision(torchvision: Any) -> None:
    steps, batch_size = 12, 16
    drawn = draw_mixing(Mixing(), steps, batch_size, (32, 32), named_generator(2, "mix"))
    # torchvision mixes every example with the one before it.
    before = np.tile((np.arange(batch_size) - 1) % batch_size, (steps, 1))
    plan = MixPlan(drawn.is_cutmix, drawn.lambdas, before, drawn.boxes)
    images = normalise(photographs(steps * batch_size, (3, 32, 32)), Normalisation((0.5,) * 3, (0.25,) * 3))
    images = images.reshape(steps, batch_size, 3, 32, 32)
    ours = apply_mixing(images.to(device()), plan).cpu()
    mixup, cutmix = torchvision.transforms.v2.MixUp(num_classes=10), torchvision.transforms.v2.CutMix(num_classes=10)
    for step in range(steps):
        labels = torch.arange(batch_size) % 10
        choices: dict[str, Any] = {"labels": labels, "batch_size": batch_size}
        top, left, bottom, right = plan.boxes[step].tolist()
        share = float(plan.lambdas[step])
        if plan.is_cutmix[step]:
            choices |= {"box": (left, top, right, bottom), "lam_adjusted": share}
        else:
            choices |= {"lam": share}
        mixer = cutmix if plan.is_cutmix[step] else mixup
        tolerance = 0 if plan.is_cutmix[step] else 1e-6
        torch.testing.assert_close(ours[step], mixer.transform(images[step], choices), rtol=0, atol=tolerance)
        soft = torch.nn.functional.one_hot(labels, 10) * share
        soft = soft + torch.nn.functional.one_hot(labels[torch.from_numpy(before[step])], 10) * (1 - share)
        torch.testing.assert_close(soft, mixer.transform(labels, choices), rtol=0, atol=1e-6)
