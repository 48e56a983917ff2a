"""The statistics of evaluation/recalibration.py at a fraction of the cost on a CPU, for ladders of many networks."""

import torch
from torch import Tensor

from fedfeast.data import Examples, Normalisation
from fedfeast.evaluation.recalibration import CALIBRATION_BATCH, in_batches
from fedfeast.federation import Deployed
from fedfeast.networks.layers import Layers
from fedfeast.networks.normalisation import Statistics, by_batch

BLOCK_ELEMENTS = 1 << 17  # half a megabyte in float32: what a core's cache holds


@torch.no_grad()
def recalibrate_quickly(deployed: Deployed, calibration: Examples, normalisation: Normalisation) -> Statistics:
    """Return each norm layer's mean and variance over the calibration examples, batch by batch."""
    recording, dtype = RecordingInBlocks(), deployed.flat.dtype
    for images, _ in in_batches(calibration, normalisation, CALIBRATION_BATCH, dtype):
        deployed(images, recording)
    return recording.statistics(dtype)


class RecordingInBlocks(Layers):
    """Normalises by the batch's own statistics and adds them up, weighted by the batch's examples."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Tensor, Tensor]] = {}
        self._examples: dict[str, int] = {}

    def __call__(self, name: str, features: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Normalise as in training; remember mean and biased variance."""
        mean, variance = moments(features)
        examples = features.shape[0]
        previous_mean, previous_variance = self._sums.get(name, (0.0, 0.0))
        self._sums[name] = (previous_mean + examples * mean, previous_variance + examples * variance)
        self._examples[name] = self._examples.get(name, 0) + examples
        return by_batch(name, features, scale, shift)

    def statistics(self, dtype: torch.dtype) -> Statistics:
        """Return the example-weighted means of the batches' means and variances."""
        return {
            name: ((mean / self._examples[name]).to(dtype), (variance / self._examples[name]).to(dtype))
            for name, (mean, variance) in self._sums.items()
        }


def moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance per channel of (batch, channels, height, width) in float64."""
    if features.is_cuda or not features.is_contiguous(memory_format=torch.channels_last):
        variance, mean = torch.var_mean(features.double(), dim=(0, 2, 3), correction=0)
        return mean, variance
    rows = features.permute(0, 2, 3, 1).flatten(0, 2)  # (pixels, channels), as they lie in memory
    blocks = torch.split(rows, max(1, BLOCK_ELEMENTS // rows.shape[1]))
    # Near the mean little is lost in float32; blocks are short, and their sums meet in float64.
    centre = blocks[0].mean(dim=0)
    first, second = (torch.zeros(rows.shape[1], dtype=torch.float64) for _ in range(2))
    for block in blocks:
        difference = block - centre
        first += difference.sum(dim=0)
        second += difference.square_().sum(dim=0)
    offset = first / len(rows)
    return centre + offset, (second / len(rows) - offset.square()).clamp_(min=0)
