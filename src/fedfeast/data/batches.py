"""A client's local epoch as a plan drawn first, then static batches made from it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

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
from fedfeast.data.class_prior import ClassPrior
from fedfeast.data.examples import Examples, Normalisation
from fedfeast.data.mixing import Mixing, MixPlan, apply_mixing, draw_mixing, mixed_labels
from fedfeast.data.randaugment import send
from fedfeast.data.sequences import NO_AUGMENTATION, SequenceAugmentation, SequencePlan, apply_sequences, draw_sequences
from fedfeast.data.tasks import CLASSIFICATION, Task

LastBatch = Literal["topped-up", "short"]

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
    last_batch: LastBatch = "topped-up"  # of an epoch
    least_distinct: int = 1  # examples that a batch has to choose from; with fewer it is left out
    class_prior: ClassPrior | None = None  # what the loss knows of a client's classes

    def count_steps(self, num_examples: int) -> int:
        """Return B_i: the mini-batches of a client's round."""
        return count_steps(num_examples, self.batch_size, self.local_epochs, self.last_batch, self.least_distinct)


@dataclass(frozen=True, eq=False)
class Batch:
    """One mixed mini-batch (x~, y_a, y_b, lambda_mix), shared by all passes of a step."""

    inputs: Tensor  # (batch, channels, ...) normalised, or token ids (batch, length)
    labels_a: Tensor  # (batch, ...)
    labels_b: Tensor  # (batch, ...)
    mix: Tensor  # (), the share of labels_a
    task: Task = CLASSIFICATION
    draw: Tensor | None = None  # (), int64: what passes draw from, where they do

    def leading(self, rows: int) -> "Batch":
        """Return the batch of the first examples alone."""
        return replace(self, inputs=self.inputs[:rows], labels_a=self.labels_a[:rows], labels_b=self.labels_b[:rows])


@dataclass(frozen=True, eq=False)
class LocalPlan:
    """Every random choice of one client's batches in one round."""

    order: np.ndarray  # (steps, batch) positions in the client's examples
    rows: np.ndarray  # (steps,) how many of them a batch has: behind these, positions mean nothing
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
            np.concatenate([plan.rows for plan in plans]),
            AugmentationPlan.concatenate([plan.augmentation for plan in plans]),
            MixPlan.concatenate([plan.mixing for plan in plans]),
            SequencePlan.concatenate(sequences) if sequences else None,
            np.concatenate(draws) if draws else None,
        )

    @property
    def num_steps(self) -> int:
        """The number of mini-batches."""
        return len(self.order)


def count_steps(
    num_examples: int,
    batch_size: int,
    local_epochs: int,
    last_batch: LastBatch = "topped-up",
    least_distinct: int = 1,
) -> int:
    """Return B_i: the mini-batches of a client's round."""
    full, rest = divmod(num_examples, batch_size)
    # A topped-up batch chooses from the whole shard, so that only a shard of fewer examples goes without it.
    distinct = rest if last_batch == "short" else num_examples
    return local_epochs * (full + int(rest > 0 and distinct >= least_distinct))


def draw_local_plan(
    num_examples: int,
    shape: tuple[int, ...],
    preparation: Preparation,
    round_index: int,
    generator: np.random.Generator,
) -> LocalPlan:
    """Draw order, augmentation and mixing of a client's round, whose examples have a shape."""
    batch_size, is_short = preparation.batch_size, preparation.last_batch == "short"
    steps = preparation.count_steps(num_examples) // preparation.local_epochs
    epochs = [_epoch_order(num_examples, steps, preparation, generator) for _ in range(preparation.local_epochs)]
    order = np.concatenate(epochs)
    rows = np.full(len(order), batch_size)
    if is_short and steps * batch_size > num_examples:
        rows[steps - 1 :: steps] = num_examples % batch_size
    augmentation = draw_augmentation(preparation.augmentation, order.size, generator)
    # Choice: the turns go on over rounds, else a client of one step a round would never see CutMix.
    mixes = preparation.mixing is not None and preparation.mixing.is_of(round_index)
    mixing = draw_mixing(
        preparation.mixing if mixes else None,
        len(order),
        batch_size,
        _image_size(shape),
        generator,
        first_turn=round_index,
    )
    if is_short:
        mixing = mixing.within(rows)
    # From generators of their own: what one of them draws changes nothing that another does.
    of_sequences, of_passes = generator.spawn(2)
    sequences = None
    if not preparation.sequences.is_none:
        sequences = draw_sequences(preparation.sequences, order.size, shape, of_sequences)
    draws = of_passes.integers(2**62, size=len(order)) if preparation.draws else None
    return LocalPlan(order, rows, augmentation, mixing, sequences, draws)


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
        for step, rows in enumerate(plan.rows[steps].tolist()):
            labels = stack.labels_a[step], stack.labels_b[step]
            draw = None if stack.draw is None else stack.draw[step]
            yield Batch(stack.inputs[step], *labels, stack.mix[step], preparation.task, draw).leading(rows)


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


def _epoch_order(num_examples: int, steps: int, preparation: Preparation, generator: np.random.Generator) -> np.ndarray:
    """Return (steps, batch) positions: one permutation, filled up from fresh ones, or with what is never looked at."""
    # Choice: static batches (docs/decisions/004).
    size = steps * preparation.batch_size
    count = 1 if preparation.last_batch == "short" else -(-size // num_examples)
    permutations = [generator.permutation(num_examples) for _ in range(count)]
    unused = np.zeros(max(0, size - count * num_examples), dtype=np.int64)
    return np.concatenate([*permutations, unused])[:size].reshape(steps, preparation.batch_size)


def _image_size(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return height and width; a sequence has one row."""
    return (shape[-2] if len(shape) > 1 else 1), shape[-1]
