"""Mixup (Zhang et al., 2018) and CutMix (Yun et al., 2019) by turns or by a coin, one mix for each mini-batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfeast.data.randaugment import send
from fedfeast.errors import InvalidInput


@dataclass(frozen=True)
class Mixing:
    """The parameters of the symmetric Beta distributions that the mixing shares come from, and whose turn it is."""

    # Choice: the paper names no parameters; 1.0 draws the share uniformly.
    mixup_beta: float = 1.0
    cutmix_beta: float = 1.0
    turns: Literal["alternate", "coin"] = "alternate"
    num_rounds: int | None = None  # the first ones, in which images are mixed; None: in all

    def is_of(self, round_index: int) -> bool:
        """Return whether images are mixed in a round."""
        return self.num_rounds is None or round_index < self.num_rounds


@dataclass(frozen=True, eq=False)
class MixPlan:
    """How each of a number of mini-batches is mixed; lambdas are the shares that an example keeps of itself."""

    is_cutmix: NDArray[np.bool_]  # (steps,)
    lambdas: NDArray[np.float64]  # (steps,); for CutMix the exact share of pixels outside the box
    partners: NDArray[np.int64]  # (steps, batch), positions within the mini-batch
    boxes: NDArray[np.int64]  # (steps, 4): top, left, bottom, right, half open; empty for Mixup

    @property
    def is_none(self) -> bool:
        """Whether every example keeps all of itself."""
        return bool((self.lambdas == 1).all() and (self.boxes == 0).all())

    def select(self, steps: slice) -> "MixPlan":
        """Return the plan of a range of mini-batches."""
        return MixPlan(self.is_cutmix[steps], self.lambdas[steps], self.partners[steps], self.boxes[steps])

    def within(self, rows: NDArray[np.int64]) -> "MixPlan":
        """Return the plan of mini-batches that end after so many examples each: no partner comes from behind."""
        partners = np.tile(np.arange(self.partners.shape[1]), (len(rows), 1))
        for own, drawn, count in zip(partners, self.partners, rows, strict=True):
            own[:count] = drawn[drawn < count]  # in their order: a permutation again, and each with the same chance
        return MixPlan(self.is_cutmix, self.lambdas, partners, self.boxes)

    @classmethod
    def concatenate(cls, plans: Sequence["MixPlan"]) -> "MixPlan":
        """Return the plan of all mini-batches, one plan's after another's."""
        fields = ("is_cutmix", "lambdas", "partners", "boxes")
        return cls(*(np.concatenate([getattr(plan, name) for plan in plans]) for name in fields))


def draw_mixing(
    mixing: Mixing | None,
    steps: int,
    batch_size: int,
    image_size: tuple[int, int],
    generator: np.random.Generator,
    first_turn: int = 0,
) -> MixPlan:
    """Draw the mixes of some mini-batches: Mixup on even turns from first_turn, CutMix on odd ones, or by a coin."""
    partners = np.tile(np.arange(batch_size), (steps, 1))
    if mixing is None:
        nothing = np.zeros(steps, dtype=bool)
        return MixPlan(nothing, np.ones(steps), partners, np.zeros((steps, 4), dtype=np.int64))
    for name, beta in (("mixup_beta", mixing.mixup_beta), ("cutmix_beta", mixing.cutmix_beta)):
        if not beta > 0:
            raise InvalidInput(f"{name} is {beta}; give a number above 0.")
    if mixing.turns == "coin":
        is_cutmix = generator.integers(2, size=steps) == 1
    else:
        # Choice: the paper only says "alternating"; we take turns by mini-batch.
        is_cutmix = (first_turn + np.arange(steps)) % 2 == 1
    betas = np.where(is_cutmix, mixing.cutmix_beta, mixing.mixup_beta)
    lambdas = generator.beta(betas, betas)
    partners = generator.permuted(partners, axis=1)
    boxes = _draw_boxes(lambdas, image_size, generator) * is_cutmix[:, None]
    top, left, bottom, right = boxes.T
    kept_share = 1 - (bottom - top) * (right - left) / (image_size[0] * image_size[1])
    return MixPlan(is_cutmix, np.where(is_cutmix, kept_share, lambdas), partners, boxes)


def apply_mixing(images: Tensor, plan: MixPlan) -> Tensor:
    """Return the float images (steps, batch, channels, height, width), each mixed with its partner."""
    if plan.is_none:
        return images
    steps, batch_size, _, height, width = images.shape
    assert plan.partners.shape == (steps, batch_size)
    flat_partners = plan.partners + batch_size * np.arange(steps)[:, None]
    others = images.flatten(0, 1).index_select(0, send(flat_partners.ravel(), images)).view(images.shape)
    precision = torch.promote_types(images.dtype, torch.float32)
    # Outside its box a CutMix step keeps everything, a Mixup step lambda; inside, nothing is kept.
    outside = np.where(plan.is_cutmix, 1.0, plan.lambdas)[:, None, None]
    kept = send(outside, images).to(precision) * ~_inside_boxes(images, plan.boxes)
    kept = kept.view(steps, 1, 1, height, width)
    return (kept * images + (1 - kept) * others).to(images.dtype)


def mixed_labels(labels: Tensor, plan: MixPlan) -> tuple[Tensor, Tensor]:
    """Return the labels (steps, batch) of the examples, weighed by lambda, and of their partners, by 1 - lambda."""
    if labels.dim() > 2:
        return labels, labels  # only single classes are ever mixed
    return labels, labels.gather(1, send(plan.partners, labels))


def _draw_boxes(
    lambdas: NDArray[np.float64], image_size: tuple[int, int], generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return boxes (steps, 4) of area share 1 - lambda around uniform centres, clipped to the image."""
    # Choice: as in CutMix's own code the centre is uniform and the box clipped, so lambda is corrected afterwards.
    size = np.asarray(image_size)
    half = (size * np.sqrt(1 - lambdas)[:, None]).astype(np.int64) // 2  # (steps, 2)
    centres = generator.integers(0, size, size=half.shape)
    return np.concatenate((np.maximum(centres - half, 0), np.minimum(centres + half, size)), axis=1)


def _inside_boxes(images: Tensor, boxes: NDArray[np.int64]) -> Tensor:
    """Return a mask (steps, height, width) of the pixels that the partner fills."""
    height, width = images.shape[-2:]
    top, left, bottom, right = send(boxes.T, images)[:, :, None, None]  # each (steps, 1, 1)
    row = torch.arange(height, device=images.device)[:, None]
    column = torch.arange(width, device=images.device)
    inside: Tensor = (row >= top) & (row < bottom) & (column >= left) & (column < right)
    return inside
