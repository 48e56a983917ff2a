"""How many rounds fit a time: a few of them are run and timed, and what they leave behind is thrown away."""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Evaluator
from fedfeast.federation import RoundOrder, sample_cohort
from fedfeast.machine import usable_cores
from fedfeast.planning.batching import plan_batches, refuse_idleness
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_pace, build_selection, build_sgd
from fedfeast.recipes.recipe import Recipe, resolve_recipe
from fedfeast.runs.assembly import Federation, assemble
from fedfeast.units import format_threads
from fedfeast.whole_files import write_json

FILE = "time_budget.json"
TRIAL_SHARE, LONGEST_TRIAL = 0.04, 20.0  # of the time, and in seconds, that rounds are tried for
MOST_VALIDATIONS, VALIDATION_SHARE = 10, 0.1  # of a run, and of its time
DRAWING = 4.0  # seconds for the summary and its pictures
SAVE_EVERY = 10.0  # seconds


@dataclass(frozen=True)
class TimeLimit:
    """A wish for how long a command may take, and when it began."""

    minutes: float
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if not 0 < self.minutes <= 60 * 24 * 365:
            raise InvalidInput(f"--minutes {self.minutes:g}: give a number above 0, such as 10.")


@dataclass(frozen=True)
class TimeBudget:
    """The rounds that were chosen for a time, and why."""

    minutes: float
    rounds: int
    validate_every: int  # rounds
    save_every: int  # rounds
    seconds_per_round: float
    seconds_per_validation: float
    seconds_at_end: float  # to measure the curves
    seconds_before: float  # that were spent when training could begin
    tried_rounds: int
    threads: int

    def settings(self) -> dict[str, int]:
        """Return it as settings of a recipe."""
        return {
            "training.rounds": self.rounds,
            "evaluation.every_rounds": self.validate_every,
            "checkpoint.every_rounds": self.save_every,
        }

    def sentence(self) -> str:
        """Say how many rounds were chosen and why."""
        validations = ceil(self.rounds / self.validate_every)
        return (
            f"{self.minutes:g} minutes: {self.rounds} rounds of about {self.seconds_per_round:.2g} s (measured in "
            f"{self.tried_rounds} rounds, {format_threads(self.threads)}), {validations} validations of "
            f"{self.seconds_per_validation:.2g} s, {self.seconds_at_end:.0f} s for the curves at the end; "
            f"{self.seconds_before:.0f} s went before"
        )


@dataclass(frozen=True)
class RoundTimes:
    """How long the parts of a run take here."""

    seconds_per_round: float
    seconds_per_validation: float
    seconds_at_end: float  # to measure the curves
    tried_rounds: int
    threads: int
    processor_seconds_per_round: float | None = None  # of this process, where the processor does all the work

    @property
    def undisturbed_seconds(self) -> float:
        """What a round takes where nothing else keeps the machine busy, as far as that can be told."""
        return min(self.seconds_per_round, self.processor_seconds_per_round or self.seconds_per_round)

    @property
    def save_every(self) -> int:
        """After how many rounds a checkpoint is due."""
        return max(ceil(SAVE_EVERY / self.seconds_per_round), 1)


def read_budget(folder: Path) -> TimeBudget | None:
    """Return the time budget that a run folder's rounds were chosen by; None where they were not."""
    path = folder / FILE
    try:
        return TimeBudget(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"{path} is damaged ({error!r}): delete it, and go on without --minutes.") from error


def write_budget(folder: Path, budget: TimeBudget) -> None:
    """Keep a time budget in its run folder."""
    write_json(folder / FILE, asdict(budget))


def choose_budget(
    recipe: Recipe, folder: Path, is_begun: bool, limit: TimeLimit | None, given: Mapping[str, Any]
) -> TimeBudget | None:
    """Return by which time budget a run is sized: that it began with, or a new one; None where it has none."""
    kept = read_budget(folder) if is_begun else None
    is_set = bool(given.keys() & {"training", "training.rounds"})
    if limit is None:
        return None if is_set else kept
    if is_set:
        raise InvalidInput("--minutes chooses training.rounds, which is set as well: leave out one of them.")
    if is_begun and (kept is None or kept.minutes != limit.minutes):
        began = "without --minutes" if kept is None else f"with --minutes {kept.minutes:g}"
        raise InvalidInput(f"the run in {folder} began {began}: go on the same way, or give another --out folder.")
    return kept or measure_budget(recipe, limit)


def measure_budget(recipe: Recipe, limit: TimeLimit) -> TimeBudget:
    """Run and time some rounds of the recipe; return how many fit the time together with what else takes some."""
    seconds = limit.minutes * 60
    times = measure_rounds(recipe, seconds)
    end = DRAWING + times.seconds_at_end
    before = time.monotonic() - limit.began
    # A slow preparation, which the next run is spared, shall not eat up training.
    left = max(seconds - before, seconds / 2) - end
    validations = count_validations(left, times.seconds_per_validation)
    rounds = max(int((left - validations * times.seconds_per_validation) / times.seconds_per_round), 1)
    return TimeBudget(
        minutes=limit.minutes,
        rounds=rounds,
        validate_every=ceil(rounds / validations),
        save_every=times.save_every,
        seconds_per_round=round(times.seconds_per_round, 4),
        seconds_per_validation=round(times.seconds_per_validation, 4),
        seconds_at_end=round(end, 2),
        seconds_before=round(before, 2),
        tried_rounds=times.tried_rounds,
        threads=times.threads,
    )


def count_validations(seconds: float, seconds_per_validation: float) -> int:
    """Return how often a run of so many seconds is validated: it shall take a small part of them."""
    return min(max(int(VALIDATION_SHARE * seconds / seconds_per_validation), 1), MOST_VALIDATIONS)


def measure_rounds(recipe: Recipe, seconds: float) -> RoundTimes:
    """Run and time some rounds of a recipe that is to train for so many seconds, and a validation after them."""
    threads = recipe.engine.threads or usable_cores()
    torch.set_num_threads(threads)
    federation = assemble(recipe)
    refuse_idleness(recipe.training, federation.participating_sizes)
    tried, per_round, of_processor, weights = _try_rounds(federation, min(TRIAL_SHARE * seconds, LONGEST_TRIAL))
    points = federation.method.operating_points()  # at most: which sizes are followed may depend on the rounds
    if recipe.evaluation.sizes == "none" or recipe.evaluation.by == "clients":
        points = build_selection(recipe).points(points, federation.population.budgets_macs)
    started = time.perf_counter()
    federation.validation.curve(federation.method, weights, points)
    validation = time.perf_counter() - started
    end = validation * _curves_over_validation(federation, len(points))
    on_processor = of_processor if federation.device.type == "cpu" else None
    return RoundTimes(per_round, validation, end, tried, threads, on_processor)


def sized(recipe: Recipe, budget: TimeBudget, given: Mapping[str, Any]) -> Recipe:
    """Return the recipe with the rounds of a time budget; what is given stays."""
    settings = budget.settings().items()
    return resolve_recipe(recipe, {key: value for key, value in settings if key not in given})


def _try_rounds(federation: Federation, seconds: float) -> tuple[int, float, float, torch.Tensor]:
    """Run rounds for some time; return how many, what an average one takes, by the processor too, and the weights."""
    recipe, method = federation.recipe, federation.method
    engine, policy, flat = federation.engine(), federation.update_policy(), federation.initial_weights()
    state, rate = method.initial_state(), build_sgd(recipe, method).learning_rate
    work, spent, computed, done = _work_of_clients(federation), list[float](), list[float](), list[float]()
    began = time.perf_counter()
    # The first round is slower than the others, so that there are two at least; those drawn may have no batch.
    while len(spent) < 2 or not sum(done[1:]) or time.perf_counter() - began < seconds:
        index = len(spent)
        generator = named_generator(recipe.seed, "cohort", index)
        cohort = sample_cohort(federation.participants, recipe.training.clients_per_round, generator)
        started, processor = time.perf_counter(), time.process_time()
        clients, planning = [federation.clients[one] for one in cohort], named_generator(recipe.seed, "plan", index)
        assignments, state = method.plan_round(state, flat, clients, index, planning)
        order = RoundOrder(flat, policy.weighed(assignments), index, rate, policy)
        result = engine.run_round(order)
        flat = result.flat
        bool(torch.isfinite(flat).all())  # waits for a device
        spent.append(time.perf_counter() - started - result.setup_seconds)
        computed.append(time.process_time() - processor)
        done.append(float(work[cohort].sum()))
    # Of a buffered merge only the first answers are trained for.
    answers = min(len(cohort), build_pace(recipe).buffer or len(cohort))
    mean_work = float(work[list(federation.participants)].mean()) * answers
    average = mean_work / sum(done[1:])
    return len(spent), max(sum(spent[1:]) * average, 1e-6), max(sum(computed[1:]) * average, 1e-6), flat


def _work_of_clients(federation: Federation) -> np.ndarray:
    """Return what a round costs each client, in MACs: cohorts differ, and the few that are tried stand for all."""
    recipe, work = federation.recipe, np.zeros(len(federation.clients))
    steps = plan_batches(recipe.training, federation.partition.shards.sizes).steps
    for group in outline(recipe).groups:
        work[group.clients] = steps[group.clients] * group.pass_macs(federation.method)
    return work


def _curves_over_validation(federation: Federation, num_points: int) -> float:
    """Return how much longer the curves at the end take than a validation: all points, and the test sets too."""
    validation, points = federation.validation, len(federation.method.operating_points()) / num_points
    if not isinstance(validation, Evaluator):
        return points * (1 + len(federation.tests))
    both = len(validation.test) + len(validation.calibration)
    return points * (both + sum(len(test.test) for test in federation.tests.values())) / both
