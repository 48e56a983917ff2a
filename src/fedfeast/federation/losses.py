"""Losses that several methods share."""

import torch.nn.functional as F
from torch import Tensor

from fedfeast.data import Batch


def mixed_cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """Return L_sup (Eq. 9): cross-entropy against both labels of the mixed batch."""
    return batch.mix * F.cross_entropy(logits, batch.labels_a) + (1 - batch.mix) * F.cross_entropy(
        logits, batch.labels_b
    )


def soft_cross_entropy(logits: Tensor, probabilities: Tensor) -> Tensor:
    """Return L_KD (Eq. 9): cross-entropy against a distribution."""
    return F.cross_entropy(logits, probabilities)
