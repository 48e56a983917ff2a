"""A task's sums, example by example, of a network under given statistics: as many examples at once as fit."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfeast.data import Examples, Normalisation
from fedfeast.data.tasks import Task
from fedfeast.evaluation.passes.folded import is_exact, layers_by
from fedfeast.evaluation.passes.recalibration import in_batches
from fedfeast.evaluation.passes.shared_prefixes import PrefixGroup
from fedfeast.federation import Deployed
from fedfeast.networks.normalisation import ByStatistics, Statistics

CPU_BATCH = 500
# Choice: enough that a GPU, not the launching of its kernels, takes the time; 4,000 and 10,000 examples are cut alike.
GPU_BATCH = 2000
LEAST_BATCH = 25  # where even so few do not fit, memory is not what is wrong with the batch


@dataclass(eq=False)
class BatchLimit:
    """The most examples that go through a network at once; fewer after a device ran out of memory."""

    examples: int | None = None  # None: as many as suit the device

    def on(self, device: torch.device) -> int:
        """Return the limit on a device."""
        suitable = CPU_BATCH if device.type == "cpu" else GPU_BATCH
        return suitable if self.examples is None else min(self.examples, suitable)

    def halve(self, device: torch.device) -> bool:
        """Halve the limit, and say so the first time; return whether that leaves enough to try again."""
        half = self.on(device) // 2
        if half < LEAST_BATCH:
            return False
        if self.examples is None:
            logging.getLogger("fedfeast").warning(
                "the device has no memory for an evaluation of %d examples at once: it goes on with %d or fewer, which "
                "gives the same figures more slowly",
                *(2 * half, half),
            )
        self.examples = half
        return True


def measure_totals(
    deployed: Deployed,
    statistics: Statistics,
    examples: Examples,
    normalisation: Normalisation | None,
    task: Task,
    limit: BatchLimit | None = None,
) -> Tensor:
    """Return a task's sums example by example under the given statistics: (examples, sums) in float64."""
    group, layers = PrefixGroup.of((deployed,)), layers_by(deployed, statistics)
    given = examples, normalisation, task, limit or BatchLimit()
    (totals,) = start_totals(group, (layers,), *given)
    if not is_exact(layers) and bool(totals.isnan().any()):
        (totals,) = start_totals(group, (ByStatistics(statistics),), *given)
    return totals


@torch.no_grad()
def start_totals(
    group: PrefixGroup,
    layers: Sequence[ByStatistics],
    examples: Examples,
    normalisation: Normalisation | None,
    task: Task,
    limit: BatchLimit,
    on_batch: Callable[[int], None] = lambda examples: None,
) -> list[Tensor]:
    """Return every network's sums as ``measure_totals`` does, without waiting for a device to make them.

    Layers that are not exact leave what is no number where an example's outputs are not finite. ``on_batch`` is told
    of how many examples went through all networks.
    """
    device, dtype = examples.labels.device, group.networks[0].flat.dtype
    while True:
        parts: list[list[Tensor]] = [[] for _ in layers]
        try:
            for inputs, labels in in_batches(examples, normalisation, limit.on(device), dtype):
                for outputs, own, mine in zip(group.outputs(inputs, layers), layers, parts, strict=True):
                    mine.append(_totals(task, outputs, labels, is_exact(own)))
                on_batch(len(labels))
            return [torch.cat(mine) for mine in parts]
        except torch.cuda.OutOfMemoryError:
            if not limit.halve(device):
                raise


def _totals(task: Task, outputs: Tensor, labels: Tensor, exact: bool) -> Tensor:
    """Return a task's sums by example."""
    totals = task.totals(outputs, labels)
    if exact:
        return totals
    is_finite = outputs.isfinite().flatten(1).all(dim=1, keepdim=True)
    return totals.masked_fill(~is_finite, torch.nan)
