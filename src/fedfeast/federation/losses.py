"""Losses that several methods share."""

import torch.nn.functional as F
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.data.tasks import CLASSIFICATION


def supervised_loss(outputs: Tensor, batch: Batch) -> Tensor:
    """Return L_sup (Eq. 9): the task's loss against both labels of the mixed batch."""
    if batch.task is CLASSIFICATION:
        return mixed_cross_entropy(outputs, batch)
    return batch.task.loss(outputs, batch.labels_a)  # only images with classes are ever mixed


def mixed_cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """Return the cross-entropy against both labels of the mixed batch."""
    log_probabilities = F.log_softmax(logits, dim=1)
    first, second = F.nll_loss(log_probabilities, batch.labels_a), F.nll_loss(log_probabilities, batch.labels_b)
    return batch.mix * first + (1 - batch.mix) * second


def soft_cross_entropy(logits: Tensor, probabilities: Tensor) -> Tensor:
    """Return L_KD (Eq. 9): cross-entropy against a distribution."""
    return F.cross_entropy(logits, probabilities)
