"""The learning rate over the rounds of a run."""

import math

FIRST_SHARE = 0.1  # of its rate that a warm-up begins with


def learning_rate(recipe_rate: float, schedule: str, round_index: int, rounds: int, warmup_rounds: int = 0) -> float:
    """Return a round's learning rate: constant, or a cosine from the recipe's rate to zero, after a warm-up."""
    # Choice: one cosine over the rounds of the run (docs/decisions/006).
    rate = recipe_rate
    if schedule != "constant":
        rate = recipe_rate * 0.5 * (1.0 + math.cos(math.pi * round_index / rounds))
    if round_index >= warmup_rounds:
        return rate
    # Choice: the schedule's own value times a straight line, so that nothing jumps at its end (docs/decisions/035).
    return rate * (FIRST_SHARE + (1.0 - FIRST_SHARE) * round_index / warmup_rounds)
