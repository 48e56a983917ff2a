"""How long a run's rounds take by the simulated clock, and what buffered merges gain, without any training."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfeast.federation import Pace, draw_cohort
from fedfeast.federation.pacing import TRAINING_FACTOR, Timeline, run_clock
from fedfeast.planning.batching import plan_batches
from fedfeast.planning.outline import Outline
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_pace, build_speeds

MOST_CLIENTS = 20_000  # beyond this no clock is played through


def plan_clock(built: Outline, num_examples: np.ndarray) -> dict[str, Any] | None:
    """Return what the run takes by the simulated clock, beside synchronous rounds; None where there is no clock."""
    recipe, clients = built.recipe, built.population.num_clients
    speeds = None
    if recipe.population.source != "fleet" and clients <= MOST_CLIENTS:
        speeds = build_speeds(recipe, built.population.names)
    if speeds is None:
        return None
    seconds, pace, rounds = client_seconds(built, num_examples, speeds), build_pace(recipe), recipe.training.rounds
    participating = seconds[np.array(built.participants)]
    quantiles = {"median": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}
    plan: dict[str, Any] = {
        "mode": recipe.fleet.mode,
        "client_seconds": {name: float(np.quantile(participating, share)) for name, share in quantiles.items()},
        **_describe(_play(built, seconds, pace, rounds)),
    }
    if pace.buffer is not None:
        # As many answers, in rounds that wait for all whom they ask.
        alike = replace(pace, buffer=None)
        as_many = ceil(rounds * built.answers_per_round / min(pace.at_once, len(built.participants)))
        plan["buffer"] = pace.buffer
        plan["synchronous"] = {"rounds": as_many, **_describe(_play(built, seconds, alike, as_many))}
    return plan


def client_seconds(built: Outline, num_examples: np.ndarray, speeds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what a round takes each client, by the expected passes of those who afford the same."""
    training, seconds = built.recipe.training, np.zeros(built.population.num_clients)
    steps = plan_batches(training, num_examples).steps * training.local_epochs
    for group in built.groups:
        a_step = group.pass_macs(built.method, built.method.network.macs)
        macs = TRAINING_FACTOR * steps[group.clients] * training.batch_size * a_step
        seconds[group.clients] = macs / speeds[group.clients]
    return seconds


def _play(built: Outline, seconds: NDArray[np.float64], pace: Pace, rounds: int) -> Timeline:
    """Play the run's rounds through, with the draws that training will have."""
    recipe = built.recipe

    def sample(eligible: Sequence[int], size: int, round_index: int) -> list[int]:
        generator = named_generator(recipe.seed, "cohort", round_index)
        return draw_cohort(recipe.training.cohort, eligible, size, round_index, generator)

    return run_clock(built.participants, lambda client: float(seconds[client]), pace, rounds, sample)


def _describe(line: Timeline) -> dict[str, Any]:
    answers = sum(line.answers.values())
    ages = sum(age * count for age, count in line.ages.items())
    return {
        "seconds": line.seconds,
        "answers": answers,
        "given_up": line.given_up,
        "clients_heard": len(line.answers),
        "mean_age": ages / answers if answers else 0.0,
        "oldest": max(line.ages, default=0),
    }
