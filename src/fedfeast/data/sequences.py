"""Time shift, noise and masking of sequences, drawn as a plan and applied to normalised inputs or token ids."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfeast.data.randaugment import send
from fedfeast.errors import InvalidInput


@dataclass(frozen=True)
class SequenceAugmentation:
    """What each training sequence goes through; the defaults leave it as it is."""

    time_shift: int = 0  # places along the last axis, at most, either way; the ends repeat
    noise: float = 0.0  # the standard deviation of what is added to normalised numbers
    mask_share: float = 0.0  # of the last axis: one span at the mean; of token ids: single ones replaced at random
    vocabulary: int = 0  # token ids to replace with; 0 where inputs are numbers

    @property
    def is_none(self) -> bool:
        """Whether sequences stay as they are."""
        return not (self.time_shift or self.noise or self.mask_share)


NO_AUGMENTATION = SequenceAugmentation()


@dataclass(frozen=True, eq=False)
class SequencePlan:
    """The random choices for a number of examples."""

    shifts: NDArray[np.int64]  # (examples,)
    spans: NDArray[np.int64]  # (examples, 2): first masked place and the place behind the last
    noise: NDArray[np.float32] | None  # (examples, *shape)
    replacements: NDArray[np.int64] | None  # (examples, length): token ids, -1 where the own one stays

    def select(self, examples: slice) -> "SequencePlan":
        """Return the plan of a range of examples."""
        noise = None if self.noise is None else self.noise[examples]
        replacements = None if self.replacements is None else self.replacements[examples]
        return SequencePlan(self.shifts[examples], self.spans[examples], noise, replacements)

    @classmethod
    def concatenate(cls, plans: Sequence["SequencePlan"]) -> "SequencePlan":
        """Return the plan of all examples, one plan's after another's; all were drawn from one augmentation."""
        noises = [plan.noise for plan in plans if plan.noise is not None]
        replacements = [plan.replacements for plan in plans if plan.replacements is not None]
        return cls(
            np.concatenate([plan.shifts for plan in plans]),
            np.concatenate([plan.spans for plan in plans]),
            np.concatenate(noises) if noises else None,
            np.concatenate(replacements) if replacements else None,
        )


def draw_sequences(
    augmentation: SequenceAugmentation, num_examples: int, shape: tuple[int, ...], generator: np.random.Generator
) -> SequencePlan:
    """Draw shift, mask and noise for every example of a shape."""
    length = shape[-1]
    if not 0 <= augmentation.time_shift < length:
        raise InvalidInput(
            f"augmentation.time_shift = {augmentation.time_shift}: give 0 to {length - 1}, less than the length."
        )
    most = augmentation.time_shift
    shifts = generator.integers(-most, most, size=num_examples, endpoint=True)
    if augmentation.vocabulary:
        replaced = generator.random((num_examples, length)) < augmentation.mask_share
        drawn = generator.integers(augmentation.vocabulary, size=(num_examples, length))
        return SequencePlan(shifts, np.zeros((num_examples, 2), np.int64), None, np.where(replaced, drawn, -1))
    widths = generator.integers(0, int(length * augmentation.mask_share), size=num_examples, endpoint=True)
    starts = generator.integers(0, length - widths, endpoint=True)
    noise = None
    if augmentation.noise:
        noise = generator.standard_normal((num_examples, *shape), dtype=np.float32) * np.float32(augmentation.noise)
    return SequencePlan(shifts, np.stack((starts, starts + widths), axis=1), noise, None)


def apply_sequences(inputs: Tensor, plan: SequencePlan) -> Tensor:
    """Return the normalised inputs (examples, ..., length), or token ids, shifted, masked and with noise."""
    if plan.replacements is not None:
        replacements = send(plan.replacements, inputs)
        return torch.where(replacements >= 0, replacements, inputs)
    length, between = inputs.shape[-1], [1] * (inputs.dim() - 2)
    place = torch.arange(length, device=inputs.device)
    if plan.shifts.any():
        source = (place - send(plan.shifts, inputs)[:, None]).clamp(0, length - 1)
        inputs = inputs.gather(-1, source.view(len(inputs), *between, length).expand(inputs.shape))
    if (plan.spans[:, 1] > plan.spans[:, 0]).any():
        first, behind = send(plan.spans, inputs).T[:, :, None]
        masked = ((place >= first) & (place < behind)).view(len(inputs), *between, length)
        inputs = inputs.masked_fill(masked, 0.0)
    return inputs if plan.noise is None else inputs + send(plan.noise, inputs).to(inputs.dtype)
