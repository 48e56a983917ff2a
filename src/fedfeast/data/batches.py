"""A client's local epoch as a plan drawn first, then static batches made from it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedfeast.data.augmentation import (
    Augmentation,
    AugmentationPlan,
    apply_augmentation,
    draw_augmentation,
    normalise,
)
from fedfeast.data.examples import Examples, Normalisation
from fedfeast.data.mixing import Mixing, MixPlan, apply_mixing, draw_mixing, mixed_labels
from fedfeast.data.randaugment import send

BLOCK_EXAMPLES = 2048  # prepared at once: bounds the memory of a long local epoch


@dataclass(frozen=True)
class Preparation:
    """How a client turns its examples into mini-batches."""

    batch_size: int
    local_epochs: int
    augmentation: Augmentation
    mixing: Mixing | None
    normalisation: Normalisation


@dataclass(frozen=True, eq=False)
class Batch:
    """One mixed mini-batch (x~, y_a, y_b, lambda_mix), shared by all passes of a step."""

    images: Tensor  # (batch, channels, height, width), normalised
    labels_a: Tensor  # (batch,)
    labels_b: Tensor  # (batch,)
    mix: Tensor  # (), the share of labels_a


@dataclass(frozen=True, eq=False)
class LocalPlan:
    """Every random choice of one client's batches in one round."""

    order: np.ndarray  # (steps, batch) positions in the client's examples
    augmentation: AugmentationPlan
    mixing: MixPlan

    @property
    def num_steps(self) -> int:
        """The number of mini-batches."""
        return len(self.order)


def count_steps(num_examples: int, batch_size: int, local_epochs: int) -> int:
    """Return B_i: the mini-batches of a client's round."""
    return local_epochs * -(-num_examples // batch_size)


def draw_local_plan(
    num_examples: int,
    image_size: tuple[int, int],
    preparation: Preparation,
    round_index: int,
    generator: np.random.Generator,
) -> LocalPlan:
    """Draw order, augmentation and mixing of a client's round."""
    batch_size = preparation.batch_size
    epochs = [_epoch_order(num_examples, batch_size, generator) for _ in range(preparation.local_epochs)]
    order = np.concatenate(epochs)
    augmentation = draw_augmentation(preparation.augmentation, order.size, generator)
    # Choice: the turns go on over rounds, else a client of one step a round would never see CutMix.
    mixing = draw_mixing(preparation.mixing, len(order), batch_size, image_size, generator, first_turn=round_index)
    return LocalPlan(order, augmentation, mixing)


@dataclass(frozen=True, eq=False)
class BatchStack:
    """Several mini-batches one behind another; the fields are those of Batch."""

    images: Tensor  # (steps, batch, channels, height, width)
    labels_a: Tensor  # (steps, batch)
    labels_b: Tensor  # (steps, batch)
    mix: Tensor  # (steps,)


def make_batches(
    examples: Examples, plan: LocalPlan, normalisation: Normalisation, dtype: torch.dtype
) -> Iterator[Batch]:
    """Yield the planned batches on the examples' device, prepared in blocks of several steps."""
    for steps in blocks_of_steps(plan, BLOCK_EXAMPLES):
        stack = make_stack(examples, plan, steps, normalisation, dtype)
        for step in range(len(stack.mix)):
            yield Batch(stack.images[step], stack.labels_a[step], stack.labels_b[step], stack.mix[step])


def blocks_of_steps(plan: LocalPlan, num_examples: int) -> Iterator[slice]:
    """Yield ranges of steps that hold about as many examples, at least one step each."""
    steps_at_once = max(1, num_examples // plan.order.shape[1])
    for start in range(0, plan.num_steps, steps_at_once):
        yield slice(start, min(start + steps_at_once, plan.num_steps))


def make_stack(
    examples: Examples, plan: LocalPlan, steps: slice, normalisation: Normalisation, dtype: torch.dtype
) -> BatchStack:
    """Gather, augment, normalise and mix the examples of a range of steps at once."""
    order, batch_size = plan.order[steps], plan.order.shape[1]
    chosen = examples.select(send(order.reshape(-1), examples.labels))
    positions = slice(steps.start * batch_size, steps.stop * batch_size)
    pixels = apply_augmentation(chosen.images, plan.augmentation.select(positions))
    images = normalise(pixels, normalisation.mean, normalisation.deviation, dtype)
    mixing = plan.mixing.select(steps)
    images = apply_mixing(images.reshape(*order.shape, *images.shape[1:]), mixing)
    labels_a, labels_b = mixed_labels(chosen.labels.reshape(order.shape), mixing)
    # A share rounded to less than float32 would weigh the two losses wrongly.
    shares = send(mixing.lambdas, images).to(torch.promote_types(dtype, torch.float32))
    return BatchStack(images, labels_a, labels_b, shares)


def _epoch_order(num_examples: int, batch_size: int, generator: np.random.Generator) -> np.ndarray:
    """Return (steps, batch) positions: one permutation, topped up from fresh ones to full batches."""
    # Choice: static batches (docs/decisions/004).
    steps = count_steps(num_examples, batch_size, 1)
    permutations = [generator.permutation(num_examples) for _ in range(-(-steps * batch_size // num_examples))]
    return np.concatenate(permutations)[: steps * batch_size].reshape(steps, batch_size)
