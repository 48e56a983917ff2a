"""A client's local epoch as a plan drawn first, then static batches made from it."""

from collections.abc import Iterator, Sequence
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
from fedfeast.data.sequences import NO_AUGMENTATION, SequenceAugmentation, SequencePlan, apply_sequences, draw_sequences
from fedfeast.data.tasks import CLASSIFICATION, Task

BLOCK_EXAMPLES = 2048  # prepared at once: bounds the memory of a long local epoch


@dataclass(frozen=True)
class Preparation:
    """How a client turns its examples into mini-batches."""

    batch_size: int
    local_epochs: int
    augmentation: Augmentation
    mixing: Mixing | None
    normalisation: Normalisation | None  # None: token ids
    task: Task = CLASSIFICATION
    sequences: SequenceAugmentation = NO_AUGMENTATION
    draws: bool = False  # whether passes draw, as dropout does


@dataclass(frozen=True, eq=False)
class Batch:
    """One mixed mini-batch (x~, y_a, y_b, lambda_mix), shared by all passes of a step."""

    inputs: Tensor  # (batch, channels, ...) normalised, or token ids (batch, length)
    labels_a: Tensor  # (batch, ...)
    labels_b: Tensor  # (batch, ...)
    mix: Tensor  # (), the share of labels_a
    task: Task = CLASSIFICATION
    draw: Tensor | None = None  # (), int64: what passes draw from, where they do


@dataclass(frozen=True, eq=False)
class LocalPlan:
    """Every random choice of one client's batches in one round."""

    order: np.ndarray  # (steps, batch) positions in the client's examples
    augmentation: AugmentationPlan
    mixing: MixPlan
    sequences: SequencePlan | None = None
    draws: np.ndarray | None = None  # (steps,) int64

    @classmethod
    def concatenate(cls, plans: Sequence["LocalPlan"], orders: Sequence[np.ndarray]) -> "LocalPlan":
        """Return one plan of several clients' batches, with the positions of their examples in a common pool."""
        sequences = [plan.sequences for plan in plans if plan.sequences is not None]
        draws = [plan.draws for plan in plans if plan.draws is not None]
        return cls(
            np.concatenate(orders),
            AugmentationPlan.concatenate([plan.augmentation for plan in plans]),
            MixPlan.concatenate([plan.mixing for plan in plans]),
            SequencePlan.concatenate(sequences) if sequences else None,
            np.concatenate(draws) if draws else None,
        )

    @property
    def num_steps(self) -> int:
        """The number of mini-batches."""
        return len(self.order)


def count_steps(num_examples: int, batch_size: int, local_epochs: int) -> int:
    """Return B_i: the mini-batches of a client's round."""
    return local_epochs * -(-num_examples // batch_size)


def draw_local_plan(
    num_examples: int,
    shape: tuple[int, ...],
    preparation: Preparation,
    round_index: int,
    generator: np.random.Generator,
) -> LocalPlan:
    """Draw order, augmentation and mixing of a client's round, whose examples have a shape."""
    batch_size = preparation.batch_size
    epochs = [_epoch_order(num_examples, batch_size, generator) for _ in range(preparation.local_epochs)]
    order = np.concatenate(epochs)
    augmentation = draw_augmentation(preparation.augmentation, order.size, generator)
    # Choice: the turns go on over rounds, else a client of one step a round would never see CutMix.
    mixing = draw_mixing(
        preparation.mixing, len(order), batch_size, _image_size(shape), generator, first_turn=round_index
    )
    # From generators of their own: what one of them draws changes nothing that another does.
    of_sequences, of_passes = generator.spawn(2)
    sequences = None
    if not preparation.sequences.is_none:
        sequences = draw_sequences(preparation.sequences, order.size, shape, of_sequences)
    draws = of_passes.integers(2**62, size=len(order)) if preparation.draws else None
    return LocalPlan(order, augmentation, mixing, sequences, draws)


@dataclass(frozen=True, eq=False)
class BatchStack:
    """Several mini-batches one behind another; the fields are those of Batch."""

    inputs: Tensor  # (steps, batch, channels, ...)
    labels_a: Tensor  # (steps, batch, ...)
    labels_b: Tensor  # (steps, batch, ...)
    mix: Tensor  # (steps,)
    draw: Tensor | None = None  # (steps,)


def make_batches(examples: Examples, plan: LocalPlan, preparation: Preparation, dtype: torch.dtype) -> Iterator[Batch]:
    """Yield the planned batches on the examples' device, prepared in blocks of several steps."""
    for steps in blocks_of_steps(plan, BLOCK_EXAMPLES):
        stack = make_stack(examples, plan, steps, preparation.normalisation, dtype)
        for step in range(len(stack.mix)):
            labels = stack.labels_a[step], stack.labels_b[step]
            draw = None if stack.draw is None else stack.draw[step]
            yield Batch(stack.inputs[step], *labels, stack.mix[step], preparation.task, draw)


def blocks_of_steps(plan: LocalPlan, num_examples: int) -> Iterator[slice]:
    """Yield ranges of steps that hold about as many examples, at least one step each."""
    steps_at_once = max(1, num_examples // plan.order.shape[1])
    for start in range(0, plan.num_steps, steps_at_once):
        yield slice(start, min(start + steps_at_once, plan.num_steps))


def make_stack(
    examples: Examples, plan: LocalPlan, steps: slice, normalisation: Normalisation | None, dtype: torch.dtype
) -> BatchStack:
    """Gather, augment, normalise and mix the examples of a range of steps at once."""
    order, batch_size = plan.order[steps], plan.order.shape[1]
    chosen = examples.select(send(order.reshape(-1), examples.labels))
    positions = slice(steps.start * batch_size, steps.stop * batch_size)
    inputs = apply_augmentation(chosen.inputs, plan.augmentation.select(positions))
    inputs = normalise(inputs, normalisation, dtype)
    if plan.sequences is not None:
        inputs = apply_sequences(inputs, plan.sequences.select(positions))
    mixing = plan.mixing.select(steps)
    inputs = apply_mixing(inputs.reshape(*order.shape, *inputs.shape[1:]), mixing)
    labels_a, labels_b = mixed_labels(chosen.labels.reshape(*order.shape, *chosen.labels.shape[1:]), mixing)
    # A share rounded to less than float32 would weigh the two losses wrongly.
    shares = send(mixing.lambdas, inputs).to(torch.promote_types(dtype, torch.float32))
    draw = None if plan.draws is None else send(plan.draws[steps], inputs)
    return BatchStack(inputs, labels_a, labels_b, shares, draw)


def _epoch_order(num_examples: int, batch_size: int, generator: np.random.Generator) -> np.ndarray:
    """Return (steps, batch) positions: one permutation, topped up from fresh ones to full batches."""
    # Choice: static batches (docs/decisions/004).
    steps = count_steps(num_examples, batch_size, 1)
    permutations = [generator.permutation(num_examples) for _ in range(-(-steps * batch_size // num_examples))]
    return np.concatenate(permutations)[: steps * batch_size].reshape(steps, batch_size)


def _image_size(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return height and width; a sequence has one row."""
    return (shape[-2] if len(shape) > 1 else 1), shape[-1]
