"""The optimiser of a client's local steps."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LocalSgd:
    """Plain SGD, a fresh one every round."""

    weight_decay: float = 5e-4  # on every routed position (docs/decisions/005)
    clip_norm: float = 10.0  # of the step's summed gradient; infinite: nothing is clipped
    momentum: float = 0.0  # heavy ball, neither Nesterov's nor damped
    learning_rate: float = 0.1  # that the schedule starts from

    def farthest(self, learning_rate: float, num_steps: int, start_norm: float) -> float:
        """Return how far so many steps can lead from weights of a norm: each is clipped, and decay only shrinks."""
        clipped = num_steps * learning_rate * self.clip_norm
        decayed = min(1.0, num_steps * learning_rate * self.weight_decay)
        return clipped + decayed * (start_norm + clipped)
