"""How good a served network is, whatever runs it."""

from collections.abc import Callable

import torch
from torch import Tensor

from fedfeast.data import Examples
from fedfeast.data.tasks import CLASSIFICATION, Task

Predict = Callable[[Tensor], Tensor]  # inputs as the data have them -> outputs, e.g. logits (batch, classes)

# Choice: features of so few images stay in a CPU's caches, which makes 50 nearly twice as fast as 500.
ACCURACY_BATCH = 50


@torch.no_grad()
def measure_figures(predict: Predict, examples: Examples, task: Task) -> dict[str, float]:
    """Return every metric of a task over the examples."""
    batches = (torch.split(part, ACCURACY_BATCH) for part in (examples.inputs, examples.labels))
    totals = [task.totals(predict(inputs), labels).sum(dim=0) for inputs, labels in zip(*batches, strict=True)]
    return task.figures(torch.stack(totals).sum(dim=0))


def measure_accuracy(predict: Predict, examples: Examples) -> float:
    """Return the share of the examples that are classified right."""
    return measure_figures(predict, examples, CLASSIFICATION)["accuracy"]
