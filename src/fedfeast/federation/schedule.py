"""The learning rate over the rounds of a run."""

import math


def learning_rate(recipe_rate: float, schedule: str, round_index: int, rounds: int) -> float:
    """Return a round's learning rate: constant, or a cosine from the recipe's rate to zero."""
    # Choice: one cosine over the rounds of the run (docs/decisions/006).
    if schedule == "constant":
        return recipe_rate
    return recipe_rate * 0.5 * (1.0 + math.cos(math.pi * round_index / rounds))
