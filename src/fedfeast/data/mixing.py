"""Mixup and CutMix by turns: one mix per mini-batch, drawn first, applied to many batches at once."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Mixing:
    """The Beta parameters of both mixes."""

    # Choice: Beta(1, 1) for both (docs/decisions/004).
    mixup_beta: float = 1.0
    cutmix_beta: float = 1.0


@dataclass(frozen=True, eq=False)
class MixPlan:
    """The mixes of a number of mini-batches."""

    is_cutmix: np.ndarray  # (steps,) bool
    shares: np.ndarray  # (steps,) lambda: what remains of an example, for CutMix by pixels really kept
    partners: np.ndarray  # (steps, batch) whom each example is mixed with
    boxes: np.ndarray  # (steps, 4) top, bottom, left, right of the pasted box

    def select(self, steps: slice) -> "MixPlan":
        """Return the plan of a range of steps."""
        return MixPlan(self.is_cutmix[steps], self.shares[steps], self.partners[steps], self.boxes[steps])


def draw_mixing(  # noqa: PLR0913
    mixing: Mixing | None,
    steps: int,
    batch_size: int,
    image_size: tuple[int, int],
    generator: np.random.Generator,
    first_turn: int = 0,
) -> MixPlan:
    """Draw Mixup on even turns and CutMix on odd ones; without mixing every share is 1."""
    is_cutmix = (first_turn + np.arange(steps)) % 2 == 1
    partners = np.tile(np.arange(batch_size), (steps, 1))
    boxes = np.zeros((steps, 4), dtype=np.int64)
    if mixing is None:
        return MixPlan(np.zeros(steps, dtype=bool), np.ones(steps), partners, boxes)
    shares = np.where(
        is_cutmix,
        generator.beta(mixing.cutmix_beta, mixing.cutmix_beta, steps),
        generator.beta(mixing.mixup_beta, mixing.mixup_beta, steps),
    )
    partners = generator.permuted(partners, axis=1)
    boxes[is_cutmix] = _draw_boxes(shares[is_cutmix], image_size, generator)
    area = (boxes[:, 1] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 2])
    shares = np.where(is_cutmix, 1 - area / (image_size[0] * image_size[1]), shares)
    return MixPlan(is_cutmix, shares, partners, boxes)


def apply_mixing(images: Tensor, plan: MixPlan) -> Tensor:
    """Return the mixed images (steps, batch, channels, height, width)."""
    if bool((plan.shares == 1).all()):
        return images
    keep = _kept_shares(plan, images.shape[3], images.shape[4])
    kept = torch.from_numpy(keep).to(images.device, images.dtype)[:, None, None]  # (steps, 1, 1, height, width)
    steps = torch.arange(len(images), device=images.device)[:, None]
    others = images[steps, torch.from_numpy(plan.partners).to(images.device)]
    return kept * images + (1 - kept) * others


def mixed_labels(labels: Tensor, plan: MixPlan) -> tuple[Tensor, Tensor]:
    """Return the labels (steps, batch) of every example and of its partner."""
    return labels, labels.gather(1, torch.from_numpy(plan.partners).to(labels.device))


def _draw_boxes(shares: np.ndarray, image_size: tuple[int, int], generator: np.random.Generator) -> np.ndarray:
    """Return boxes of area 1 - share around uniform centres, cut off at the image's edge."""
    sides = np.array(image_size)
    extent = (sides * np.sqrt(1 - shares)[:, None]).astype(np.int64)  # (steps, 2) height, width
    centre = generator.integers(0, sides, (len(shares), 2))
    first = np.clip(centre - extent // 2, 0, sides)
    last = np.clip(centre - extent // 2 + extent, 0, sides)
    return np.stack([first[:, 0], last[:, 0], first[:, 1], last[:, 1]], axis=1)


def _kept_shares(plan: MixPlan, height: int, width: int) -> np.ndarray:
    """Return per step and pixel how much of the example itself remains."""
    rows, columns = np.arange(height), np.arange(width)
    top, bottom, left, right = plan.boxes.T[..., None]
    in_rows = (rows >= top) & (rows < bottom)  # (steps, height)
    in_columns = (columns >= left) & (columns < right)  # (steps, width)
    outside = ~(in_rows[:, :, None] & in_columns[:, None, :])
    return np.where(plan.is_cutmix[:, None, None], outside, plan.shares[:, None, None])
