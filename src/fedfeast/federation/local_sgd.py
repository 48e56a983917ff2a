"""The optimiser of a client's local steps."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LocalSgd:
    """Plain SGD, a fresh one every round."""

    weight_decay: float = 5e-4  # on every routed position (docs/decisions/005)
    clip_norm: float = 10.0  # of the step's summed gradient
