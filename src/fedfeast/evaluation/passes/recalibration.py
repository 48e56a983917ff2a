"""Served batch-norm statistics, measured afresh for every operating point on server-held or the clients' examples."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedfeast.data import Augmentation, Examples, Normalisation, normalise
from fedfeast.data.augmentation import apply_augmentation, draw_augmentation
from fedfeast.evaluation.passes.shared_prefixes import PrefixGroup
from fedfeast.federation import Deployed
from fedfeast.networks.normalisation import RecordingByBatch, Statistics

# Choice: fixed order and at most this many a batch, so that the statistics are a pure function of weights and examples.
CALIBRATION_BATCH = 250
GPU_PASS = 512  # examples: fewer leave a device idle while the next batch's kernels are launched


def recalibrate(
    deployed: Deployed, calibration: Examples, normalisation: Normalisation | None, batch_size: int | None = None
) -> Statistics:
    """Return each norm layer's mean and variance over the calibration examples, batch by batch.

    Batches are of the given size, the last one what is left; without it as equal as can be.
    """
    (statistics,) = recalibrate_group(PrefixGroup.of((deployed,)), calibration, normalisation, batch_size)
    return statistics


@torch.no_grad()
def recalibrate_group(
    group: PrefixGroup, calibration: Examples, normalisation: Normalisation | None, batch_size: int | None = None
) -> list[Statistics]:
    """Return what ``recalibrate`` does for every network of a group."""
    recordings = [RecordingByBatch() for _ in group.networks]
    flat = group.networks[0].flat
    if batch_size is None:
        batches = (inputs for inputs, _ in in_batches(calibration, normalisation, CALIBRATION_BATCH, flat.dtype))
    else:
        pieces = _in_full_batches(calibration.inputs, batch_size)
        batches = (normalise(inputs, normalisation, flat.dtype) for inputs in pieces)
    for inputs, num_batches in passes(batches, GPU_PASS if flat.is_cuda else 1):
        for recording in recordings:
            recording.batches = num_batches
        for _ in group.outputs(inputs, recordings):
            pass
        if all(recording.is_empty for recording in recordings):
            break  # no layer needs statistics, and the other batches would say the same
    return _with_shared(group, [recording.statistics(flat.dtype) for recording in recordings])


def _with_shared(group: PrefixGroup, recorded: Sequence[Statistics]) -> list[Statistics]:
    """Return every network's statistics whole: of the parts that it shares with the one before it, that one's."""
    whole = [recorded[0]]
    for deployed, own in zip(group.networks[1:], recorded[1:], strict=True):
        shared = {name: both for name, both in whole[-1].items() if f"{name}.scale" in deployed.weights}
        whole.append(shared | dict(own))
    return whole


def passes(batches: Iterable[Tensor], most_examples: int) -> Iterator[tuple[Tensor, int]]:
    """Yield batches that follow one another and are of one size as one tensor, and how many they are."""
    waiting = list[Tensor]()
    for batch in batches:
        fits = len(batch) * (len(waiting) + 1) <= most_examples
        if waiting and (len(batch) != len(waiting[0]) or not fits):
            yield torch.cat(waiting), len(waiting)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield torch.cat(waiting), len(waiting)


def augmented(examples: Examples, augmentation: Augmentation, generator: np.random.Generator) -> Examples:
    """Return images as training sees them, cropped, flipped and RandAugmented once, but never mixed."""
    plan = draw_augmentation(augmentation, len(examples), generator)
    return Examples(apply_augmentation(examples.inputs, plan), examples.labels)


def _in_full_batches(inputs: Tensor, batch_size: int) -> list[Tensor]:
    """Return batches of a size and one of the rest, which the one before it takes in where it is a single example."""
    pieces = list(torch.split(inputs, batch_size))
    if len(pieces) > 1 and len(pieces[-1]) == 1:
        pieces[-2:] = [torch.cat(pieces[-2:])]
    return pieces


@dataclass(frozen=True, eq=False)
class StatisticsSums:
    """What clients say of their examples for the served statistics: sums that add up, and no example."""

    by_layer: Mapping[str, Tensor]  # (2, channels) in float64: sums of means and of mean squares over examples
    examples: int

    @classmethod
    @torch.no_grad()
    def of(cls, deployed: Deployed, examples: Examples, normalisation: Normalisation | None) -> "StatisticsSums":
        """Sum over a client's own examples, batch by batch in fixed order."""
        sums = cls({}, 0)
        # A single example may have no batch statistics: such a client says nothing.
        if len(examples) < 2:
            return sums
        for inputs, _ in in_batches(examples, normalisation, CALIBRATION_BATCH, deployed.flat.dtype):
            recording = RecordingByBatch()
            deployed(inputs, recording)
            layers = recording.statistics(torch.float64)
            moments = {name: torch.stack((mean, variance + mean**2)) for name, (mean, variance) in layers.items()}
            sums = sums.plus(cls({name: len(inputs) * both for name, both in moments.items()}, len(inputs)))
        return sums

    def plus(self, other: "StatisticsSums") -> "StatisticsSums":
        """Return the sums over both sides' examples."""
        if not self.examples or not other.examples:
            return self if self.examples else other
        assert self.by_layer.keys() == other.by_layer.keys(), "the sums are of different networks"
        sums = {name: both + other.by_layer[name] for name, both in self.by_layer.items()}
        return StatisticsSums(sums, self.examples + other.examples)

    def statistics(self, dtype: torch.dtype) -> Statistics:
        """Return mean and variance over all examples: unlike clients spread the means, which counts here."""
        means = {name: both / self.examples for name, both in self.by_layer.items()}
        return {
            name: (mean.to(dtype), (square - mean**2).clamp(min=0).to(dtype)) for name, (mean, square) in means.items()
        }


def in_batches(
    examples: Examples, normalisation: Normalisation | None, batch_size: int, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield normalised inputs and labels in order, without augmentation, in batches as equal as can be."""
    if not len(examples):
        return
    # A remainder of one example would have no batch statistics.
    num_batches = -(-len(examples) // batch_size)
    pieces = zip(examples.inputs.tensor_split(num_batches), examples.labels.tensor_split(num_batches), strict=True)
    for inputs, labels in pieces:
        yield normalise(inputs, normalisation, dtype), labels
