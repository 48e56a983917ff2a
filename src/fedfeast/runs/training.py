"""The training loop: rounds, validation, checkpoints."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from fedfeast.engines.distributed import DistributedEngine, measure_curve
from fedfeast.engines.ranks import LostRank, Ranks
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import served_points
from fedfeast.federation import Assignment, sample_cohort
from fedfeast.randomness import named_generator
from fedfeast.runs.assembly import Federation
from fedfeast.runs.checkpoint import Best, TrainingState
from fedfeast.runs.folder import RunFolder
from fedfeast.runs.interrupts import uninterrupted


class Observer(Protocol):
    """Is told of progress; the command line draws it."""

    def on_start(self, finished_rounds: int, total_rounds: int, damaged: Sequence[str]) -> None:
        """Training begins, or goes on after the given rounds; damaged checkpoints were passed over."""
        ...

    def on_round(self, row: dict[str, Any]) -> None:
        """A round was finished; row is its line of metrics."""
        ...

    def on_evaluation(self, measured: int, total: int) -> None:
        """The final curve is being measured, point by point."""
        ...


class Silent:
    """An observer that shows nothing."""

    def on_start(self, finished_rounds: int, total_rounds: int, damaged: Sequence[str]) -> None:
        """Show nothing."""

    def on_round(self, row: dict[str, Any]) -> None:
        """Show nothing."""

    def on_evaluation(self, measured: int, total: int) -> None:
        """Show nothing."""


def learning_rate(recipe_rate: float, schedule: str, round_index: int, rounds: int) -> float:
    """Return a round's learning rate: constant, or a cosine from the recipe's rate to zero."""
    # Choice: one cosine over the rounds of the run (docs/decisions/006).
    if schedule == "constant":
        return recipe_rate
    return recipe_rate * 0.5 * (1.0 + math.cos(math.pi * round_index / rounds))


def train_rounds(federation: Federation, folder: RunFolder, observer: Observer, ranks: Ranks) -> TrainingState:
    """Run every round that the folder's newest whole checkpoint has not finished; save when interrupted."""
    recipe = federation.recipe
    state, damaged = ranks.from_leader(lambda: _starting_state(federation, folder))
    state = replace(state, flat=state.flat.to(federation.device))
    observer.on_start(state.finished_rounds, recipe.training.rounds, damaged)
    saved_rounds = state.finished_rounds
    trainer = _RoundTrainer(federation, folder, ranks)

    def save() -> None:
        if ranks.leads:
            folder.checkpoints.save(state)

    try:
        while state.finished_rounds < recipe.training.rounds:
            state, row = trainer.next_round(state)
            observer.on_round(row)
            last = state.finished_rounds == recipe.training.rounds
            if last or state.finished_rounds % recipe.checkpoint.every_rounds == 0:
                save()
                saved_rounds = state.finished_rounds
    except (KeyboardInterrupt, LostRank):
        if state.finished_rounds > saved_rounds:
            with uninterrupted():
                save()
        raise
    return state


def _starting_state(federation: Federation, folder: RunFolder) -> tuple[TrainingState, list[str]]:
    """Return the state to train on from, on the CPU, and the damaged checkpoints; cut the metrics back to it."""
    state, damaged = folder.checkpoints.load_latest()
    if state is None:
        state = TrainingState(0, federation.initial_weights().cpu(), federation.method.initial_state())
    folder.cut_metrics(state.metrics_bytes)
    return state, damaged


class _RoundTrainer:
    """Takes a run from one state to the next."""

    def __init__(self, federation: Federation, folder: RunFolder, ranks: Ranks) -> None:
        self._federation, self._folder, self._ranks = federation, folder, ranks
        self._engine = federation.engine()
        if ranks.size > 1:
            self._engine = DistributedEngine(self._engine, ranks, federation.preparation)
        budgets = federation.population.budgets_macs
        self._served = served_points(federation.method.operating_points(), budgets)

    def next_round(self, state: TrainingState) -> tuple[TrainingState, dict[str, Any]]:
        """Run one round; validate where it is due; write the round's line of metrics."""
        federation, training = self._federation, self._federation.recipe.training
        started, round_index = time.perf_counter(), state.finished_rounds
        rate = learning_rate(training.learning_rate, training.schedule, round_index, training.rounds)
        assignments, method_state = self._plan(state, round_index)
        result = self._engine.run_round(state.flat, assignments, round_index, rate)
        if not bool(torch.isfinite(result.flat).all()):
            raise InvalidInput(
                f"training diverged in round {round_index + 1} (weights that are not finite): lower "
                f"training.learning_rate = {training.learning_rate} or training.clip_norm = {training.clip_norm}."
            )
        row: dict[str, Any] = {
            "round": round_index + 1,
            "learning_rate": rate,
            "clients": [assignment.client.index for assignment in assignments],
            "steps": result.num_steps,
            "payload_parameters": sum(assignment.slice_map.payload for assignment in assignments),
            "losses": dict(result.losses),
        }
        if result.setup_seconds:
            row["setup_seconds"] = round(result.setup_seconds, 4)  # of the round's seconds
        best = state.best
        if (round_index + 1) % federation.recipe.evaluation.every_rounds == 0 or round_index + 1 == training.rounds:
            row["validation_score"] = score = self._validate(result.flat)
            if best is None or score > best.score:
                best = Best(round_index + 1, score, result.flat)
        row["seconds"] = round(time.perf_counter() - started, 4)
        metrics_bytes = self._folder.append_metrics(row) if self._ranks.leads else 0
        return TrainingState(round_index + 1, result.flat, method_state, best, metrics_bytes), row

    def _plan(self, state: TrainingState, round_index: int) -> tuple[list[Assignment], Any]:
        federation = self._federation
        seed = federation.recipe.seed
        sampled = sample_cohort(
            federation.participants,
            federation.recipe.training.clients_per_round,
            named_generator(seed, "cohort", round_index),
        )
        cohort = [federation.clients[index] for index in sampled]
        generator = named_generator(seed, "plan", round_index)
        return federation.method.plan_round(state.method_state, state.flat, cohort, round_index, generator)

    def _validate(self, flat: torch.Tensor) -> float:
        """Return the validation population score, measured at the points that serve somebody."""
        federation = self._federation
        curve = measure_curve(self._ranks, federation.validation, federation.method, flat, self._served)
        return curve.population_score(federation.population.budgets_macs)
