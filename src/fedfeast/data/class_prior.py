"""How often a client has each class, as what is added to its logits while it trains."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ClassPrior:
    """The logarithm of a client's own class frequencies, times a strength."""

    strength: float  # tau
    classes: int

    def of(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what is added to the logits (classes,) of a client with these labels."""
        # Choice: every class counts as seen once more than it was, so that one without examples has a finite logit.
        counts = torch.bincount(labels, minlength=self.classes).double() + 1.0
        return (self.strength * (counts / counts.sum()).log()).to(dtype)
