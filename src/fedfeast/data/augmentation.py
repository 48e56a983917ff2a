"""Random crop, horizontal flip and RandAugment, drawn as a plan and applied to batches of uint8 images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfeast.data.examples import Normalisation
from fedfeast.data.randaugment import (
    RandAugmentPlan,
    apply_randaugment,
    draw_randaugment,
    sample_pixels,
    send,
)
from fedfeast.errors import InvalidInput


@dataclass(frozen=True)
class Augmentation:
    """What each training image goes through; the defaults leave it as it is."""

    crop_padding: int = 0  # pixels added on each side before cropping back to size
    flip: bool = False
    randaugment: tuple[int, int] | None = None  # operations per image, magnitude bin 0..30
    crop_fill: Literal["black", "reflect"] = "black"  # what is added: nothing, or the image mirrored at its edge


@dataclass(frozen=True, eq=False)
class AugmentationPlan:
    """The random choices for a number of examples, drawn before any pixel is touched."""

    crop_shifts: NDArray[np.int64]  # (examples, 2): rows and columns, -padding..padding
    flips: NDArray[np.bool_]  # (examples,)
    randaugment: RandAugmentPlan | None
    reflects: bool = False  # beyond an edge lies the image's mirror image instead of black

    def select(self, examples: slice) -> "AugmentationPlan":
        """Return the plan of a range of examples, so that a long epoch can be applied in blocks."""
        randaugment = None if self.randaugment is None else self.randaugment.select(examples)
        return AugmentationPlan(self.crop_shifts[examples], self.flips[examples], randaugment, self.reflects)

    @classmethod
    def concatenate(cls, plans: Sequence["AugmentationPlan"]) -> "AugmentationPlan":
        """Return the plan of all examples, one plan's after another's; all were drawn from one augmentation."""
        parts = [plan.randaugment for plan in plans if plan.randaugment is not None]
        return cls(
            np.concatenate([plan.crop_shifts for plan in plans]),
            np.concatenate([plan.flips for plan in plans]),
            RandAugmentPlan.concatenate(parts) if parts else None,
            plans[0].reflects,
        )


def draw_augmentation(
    augmentation: Augmentation, num_examples: int, generator: np.random.Generator
) -> AugmentationPlan:
    """Draw crop, flip and RandAugment for every example."""
    padding = augmentation.crop_padding
    if padding < 0:
        raise InvalidInput(f"crop_padding is {padding} pixels; give 0 or more.")
    crop_shifts = generator.integers(-padding, padding, size=(num_examples, 2), endpoint=True)
    flips = (generator.integers(2, size=num_examples) == 1) & augmentation.flip
    reflects = augmentation.crop_fill == "reflect"
    if augmentation.randaugment is None:
        return AugmentationPlan(crop_shifts, flips, None, reflects)
    num_ops, magnitude = augmentation.randaugment
    randaugment = draw_randaugment(num_examples, num_ops, magnitude, generator)
    return AugmentationPlan(crop_shifts, flips, randaugment, reflects)


def apply_augmentation(images: Tensor, plan: AugmentationPlan) -> Tensor:
    """Return the uint8 images (examples, channels, height, width) cropped, flipped and RandAugmented."""
    assert len(images) == len(plan.flips)
    # Choice: crop and flip come before RandAugment, the order of the reference implementations.
    if plan.crop_shifts.any() or plan.flips.any():
        assert images.dtype == torch.uint8
        images = _crop_and_flip(images, plan)
    if plan.randaugment is None or not plan.randaugment.operations.size:
        return images
    return apply_randaugment(images, plan.randaugment)


def normalise(inputs: Tensor, normalisation: Normalisation | None, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return (number - mean) / deviation per channel of (examples, channels, ...), pixels / 255; token ids as int64."""
    if normalisation is None:
        return inputs.long()
    # Below float32 the factors themselves would round by up to half a percent.
    precision = torch.promote_types(dtype, torch.float32)
    mean, deviation = np.asarray(normalisation.mean), np.asarray(normalisation.deviation)
    factors = np.stack((1 / ((255 if inputs.dtype == torch.uint8 else 1) * deviation), -mean / deviation))
    per_channel = (2, -1, *[1] * (inputs.dim() - 2))
    scale, shift = send(factors, inputs).to(precision).view(per_channel)
    return inputs.to(precision, copy=True).mul_(scale).add_(shift).to(dtype)


def _crop_and_flip(images: Tensor, plan: AugmentationPlan) -> Tensor:
    height, width = images.shape[-2:]
    columns = np.broadcast_to(np.arange(width), (len(images), width))
    columns = np.where(plan.flips[:, None], columns[:, ::-1], columns) + plan.crop_shifts[:, 1:]
    rows = np.arange(height) + plan.crop_shifts[:, :1]
    if plan.reflects:
        rows, columns = _reflect(rows, height), _reflect(columns, width)
    return sample_pixels(images, send(rows[:, :, None], images), send(columns[:, None, :], images))


def _reflect(places: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return places beyond an edge mirrored at the edge's own pixel, which is not repeated."""
    return np.asarray(size - 1 - np.abs(size - 1 - np.abs(places)), dtype=np.int64)
