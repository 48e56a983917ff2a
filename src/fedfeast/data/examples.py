"""Examples in memory: inputs of any shape with labels, and each client's share of a pool."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfeast.population import Shards

MEASURED_AT_ONCE = 4096  # images: counting takes eight times their bytes


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs, by example uint8 images (channels, height, width), numbers (channels, ...) or token ids; and labels."""

    inputs: Tensor
    labels: Tensor  # (examples,) classes; of other tasks as data/tasks.py says

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.inputs.shape[1:])

    def select(self, indices: Tensor) -> "Examples":
        """Return the examples at these positions."""
        return Examples(self.inputs[indices], self.labels[indices])

    def to(self, device: torch.device) -> "Examples":
        """Return the examples on a device."""
        return Examples(self.inputs.to(device), self.labels.to(device))


@dataclass(frozen=True, eq=False)
class ShardedExamples:
    """A pool of examples of which every client holds a disjoint shard."""

    pool: Examples
    shards: Shards

    def of_client(self, client: int) -> Examples:
        """Return one client's examples."""
        return self.pool.select(torch.from_numpy(self.shards[client]).to(self.pool.labels.device))


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation per channel: of pixels scaled to [0, 1], of other numbers as they are."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class NaturalClients:
    """The data's own clients, such as speakers: their names, and whose each training and test example is."""

    names: tuple[str, ...]
    train: NDArray[np.int64]  # positions in names
    test: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples; normalisation where there is an official one, the server's own where it has some."""

    train: Examples
    test: Examples
    classes: int
    normalisation: Normalisation | None = None
    server: Examples | None = None  # validation and calibration come from here, and then the clients share all of train
    clients: NaturalClients | None = None


def measure_normalisation(inputs: Tensor) -> Normalisation:
    """Return the mean and deviation per channel over uint8 images, or other numbers."""
    return _measure_pixels(inputs) if inputs.dtype == torch.uint8 else _measure_numbers(inputs)


def _measure_pixels(images: Tensor) -> Normalisation:
    counts = np.zeros((images.shape[1], 256), dtype=np.int64)
    for start in range(0, len(images), MEASURED_AT_ONCE):
        block = images[start : start + MEASURED_AT_ONCE]
        for channel, row in enumerate(counts):
            row += np.bincount(block[:, channel].reshape(-1).numpy(), minlength=256)
    levels = np.arange(256) / 255.0
    mean = counts @ levels / counts.sum(axis=1)
    variance = counts @ levels**2 / counts.sum(axis=1) - mean**2
    return Normalisation(tuple(mean.tolist()), tuple(np.sqrt(np.maximum(variance, 1e-12)).tolist()))


def _measure_numbers(inputs: Tensor) -> Normalisation:
    channels, rest = inputs.shape[1], [axis for axis in range(inputs.dim()) if axis != 1]
    count = inputs.numel() // channels
    sums, squares = (torch.zeros(channels, dtype=torch.float64) for _ in range(2))
    mean = sums
    for measured in (False, True):  # the mean first: squares around it lose nothing
        for block in torch.split(inputs, MEASURED_AT_ONCE):
            numbers = block.double()
            if measured:
                around = numbers - mean.reshape(-1, *[1] * (inputs.dim() - 2))
                squares += around.square().sum(dim=rest)
            else:
                sums += numbers.sum(dim=rest)
        mean = sums / count
    deviation = (squares / count).sqrt()
    # A channel that never changes is only shifted.
    deviation[deviation <= 1e-12 * mean.abs().clamp(min=1e-12)] = 1.0
    return Normalisation(tuple(mean.tolist()), tuple(deviation.tolist()))
