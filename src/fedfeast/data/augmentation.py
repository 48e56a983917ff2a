"""Augmentation of images: everything random is drawn first, then applied in batches on any device."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedfeast.data.randaugment import NUM_BINS, RandAugmentPlan, apply_randaugment, draw_randaugment
from fedfeast.errors import InvalidInput


@dataclass(frozen=True)
class Augmentation:
    """Random crop after zero padding, horizontal flip, then RandAugment(operations, magnitude)."""

    crop_padding: int = 0
    flip: bool = False
    randaugment: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        operations, magnitude = self.randaugment
        if operations < 0 or not 0 <= magnitude < NUM_BINS:
            raise InvalidInput(
                f"augmentation.randaugment = {list(self.randaugment)}: give operations of at least 0 "
                f"and a magnitude from 0 to {NUM_BINS - 1}."
            )
        if self.crop_padding < 0:
            raise InvalidInput(f"augmentation.crop_padding = {self.crop_padding}: give at least 0 pixels.")


@dataclass(frozen=True, eq=False)
class AugmentationPlan:
    """The random choices for a number of examples."""

    crop_padding: int
    offsets: np.ndarray  # (examples, 2): row and column of the crop in the padded image
    flips: np.ndarray  # (examples,) bool
    randaugment: RandAugmentPlan

    def select(self, examples: slice) -> "AugmentationPlan":
        """Return the plan of a range of examples."""
        return AugmentationPlan(
            self.crop_padding, self.offsets[examples], self.flips[examples], self.randaugment.select(examples)
        )


def draw_augmentation(
    augmentation: Augmentation, num_examples: int, generator: np.random.Generator
) -> AugmentationPlan:
    """Draw crop, flip and RandAugment of every example."""
    offsets = generator.integers(0, 2 * augmentation.crop_padding + 1, (num_examples, 2))
    flips = generator.integers(0, 2, num_examples).astype(bool) & augmentation.flip
    randaugment = draw_randaugment(num_examples, *augmentation.randaugment, generator)
    return AugmentationPlan(augmentation.crop_padding, offsets, flips, randaugment)


def apply_augmentation(images: Tensor, plan: AugmentationPlan) -> Tensor:
    """Return the augmented uint8 images (examples, channels, height, width)."""
    if plan.crop_padding or plan.flips.any():
        images = _crop_and_flip(images, plan)
    return apply_randaugment(images, plan.randaugment)


def normalise(images: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...], dtype: torch.dtype) -> Tensor:
    """Return (pixel / 255 - mean) / deviation per channel of uint8 images."""
    scale, shift = (
        torch.tensor(values, dtype=dtype, device=images.device)[:, None, None]
        for values in ([1 / (255 * one) for one in deviation], [-m / d for m, d in zip(mean, deviation, strict=True)])
    )
    return images.to(dtype).mul_(scale).add_(shift)


def _crop_and_flip(images: Tensor, plan: AugmentationPlan) -> Tensor:
    examples, channels, height, width = images.shape
    padded = F.pad(images, (plan.crop_padding,) * 4)
    rows = plan.offsets[:, :1] + np.arange(height)  # (examples, height)
    columns = plan.offsets[:, 1:] + np.arange(width)  # (examples, width)
    columns[plan.flips] = columns[plan.flips, ::-1]
    sources = rows[:, :, None] * padded.shape[3] + columns[:, None, :]  # (examples, height, width)
    index = torch.from_numpy(sources.reshape(examples, 1, -1)).to(images.device)
    taken = padded.flatten(2).gather(2, index.expand(-1, channels, -1))
    return taken.reshape(images.shape)
