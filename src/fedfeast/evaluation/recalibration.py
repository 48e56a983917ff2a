"""Served batch-norm statistics, measured afresh for every operating point on server-held examples."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedfeast.data import Examples, Normalisation, normalise
from fedfeast.federation import Deployed
from fedfeast.networks.normalisation import RecordingByBatch, Statistics

# Choice: fixed order and at most this many a batch, so that the statistics are a pure function of weights and examples.
CALIBRATION_BATCH = 250


@torch.no_grad()
def recalibrate(deployed: Deployed, calibration: Examples, normalisation: Normalisation | None) -> Statistics:
    """Return each norm layer's mean and variance over the calibration examples, batch by batch."""
    recording = RecordingByBatch()
    dtype = deployed.flat.dtype
    for images, _ in in_batches(calibration, normalisation, CALIBRATION_BATCH, dtype):
        deployed(images, recording)
    return recording.statistics(dtype)


def in_batches(
    examples: Examples, normalisation: Normalisation | None, batch_size: int, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield normalised images and labels in order, without augmentation, in batches as equal as can be."""
    # A remainder of one example would have no batch statistics.
    num_batches = -(-len(examples) // batch_size)
    pieces = zip(examples.inputs.tensor_split(num_batches), examples.labels.tensor_split(num_batches), strict=True)
    for images, labels in pieces:
        yield normalise(images, normalisation, dtype), labels
