"""The optimiser of a client's local steps."""

from dataclasses import dataclass
from typing import Literal

from fedfeast.errors import InvalidInput

Unreached = Literal["decay", "keep"]


@dataclass(frozen=True)
class LocalSgd:
    """PyTorch's SGD, a fresh one for every client and round: v <- momentum v + (clipped g + decay w); w <- w - rate v.

    A method may replace any of it (``Method.optimiser``). All that differs from one step to the next is the round's
    rate, which engines are told.
    """

    weight_decay: float = 5e-4  # on every routed position (docs/decisions/005)
    clip_norm: float = 10.0  # of the step's summed gradient; infinite: nothing is clipped
    momentum: float = 0.0  # heavy ball, neither Nesterov's nor damped
    learning_rate: float = 0.1  # that the schedule starts from
    unreached: Unreached = "decay"  # what becomes of tensors that no pass of a step goes through (docs/decisions/029)

    def __post_init__(self) -> None:
        """Refuse what no optimiser can be."""
        if not 0 <= self.momentum < 1:
            raise InvalidInput(f"momentum = {self.momentum}: give a number from 0 to below 1.")
        if not 0 < self.learning_rate < float("inf"):
            raise InvalidInput(f"learning_rate = {self.learning_rate}: give a positive number.")
        if not 0 <= self.weight_decay < float("inf"):
            raise InvalidInput(f"weight_decay = {self.weight_decay}: give a number from 0 on.")
        if not self.clip_norm > 0:
            raise InvalidInput(f"clip_norm = {self.clip_norm}: give a positive number, inf for none.")

    def shrinkage(self, learning_rate: float, num_steps: int) -> float:
        """Return by what factor so many steps scale a weight whose gradient is always zero."""
        if not self.momentum:
            return float((1.0 - learning_rate * self.weight_decay) ** num_steps)
        weight, velocity = 1.0, 0.0
        for _ in range(num_steps):
            velocity = self.momentum * velocity + self.weight_decay * weight
            weight -= learning_rate * velocity
        return weight

    def farthest(self, learning_rate: float, num_steps: int, start_norm: float) -> float:
        """Return how far so many steps can lead from weights of a norm: each is clipped, and decay pulls towards 0."""
        # A gradient goes on pushing at later steps: as much as (1 - m^k) / (1 - m) steps, after k of them.
        lasting = self.momentum * (1 - self.momentum**num_steps) / (1 - self.momentum)
        steps = (num_steps - lasting) / (1 - self.momentum)
        clipped = steps * learning_rate * self.clip_norm
        # What is pulled by momentum may swing past zero, though never as far as it came from.
        decayed = min(2.0 if self.momentum else 1.0, steps * learning_rate * self.weight_decay)
        return clipped + decayed * (start_norm + clipped)
