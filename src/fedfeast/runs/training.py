"""The training loop: rounds, validation, checkpoints."""

import time
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch

from fedfeast.engines.distributed import DistributedEngine, measure_curve
from fedfeast.engines.paced import PacedEngine
from fedfeast.engines.ranks import LostRank, Ranks
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Curve, Validation
from fedfeast.federation import (
    Assignment,
    CentralRound,
    Client,
    Engine,
    Merged,
    OperatingPoint,
    RoundOrder,
    State,
    TooFewAnswers,
    draw_cohort,
    expected_holders,
    learning_rate,
    sampling_rate,
    spent_centrally,
)
from fedfeast.planning.validated_sizes import further_sizes
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import (
    build_central_privacy,
    build_pace,
    build_selection,
    build_server,
    build_sgd,
    build_speeds,
)
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


class ClientSource(Protocol):
    """Who is there to train, and where a round runs."""

    def engine(self, federation: Federation) -> Engine:
        """Return where rounds run."""
        ...

    def available(self, federation: Federation, round_index: int) -> Federation:
        """Return the federation with the clients that a round may sample; wait where there are none."""
        ...

    def validation(self, federation: Federation) -> Validation:
        """Return by what rounds are judged."""
        ...


class SimulatedClients:
    """All clients of the recipe's population, always there, on this machine."""

    def engine(self, federation: Federation) -> Engine:
        """Return the engine that the recipe names."""
        return federation.engine()

    def available(self, federation: Federation, round_index: int) -> Federation:
        """Return the federation as it is."""
        return federation

    def validation(self, federation: Federation) -> Validation:
        """Return the federation's own."""
        return federation.validation


def train_rounds(
    federation: Federation, folder: RunFolder, observer: Observer, ranks: Ranks, client_source: ClientSource
) -> tuple[TrainingState, Federation]:
    """Run every round that the folder's newest whole checkpoint has not finished; save when interrupted.

    The federation comes back with the clients that it has at the end.
    """
    recipe = federation.recipe
    state, damaged = ranks.from_leader(lambda: _starting_state(federation, folder))
    server_state = {name: one.to(federation.device) for name, one in state.server_state.items()}
    state = replace(state, flat=state.flat.to(federation.device), server_state=server_state)
    observer.on_start(state.finished_rounds, recipe.training.rounds, damaged)
    saved_rounds = state.finished_rounds
    trainer = _RoundTrainer(federation, folder, ranks, client_source)
    trainer.resume(state)

    def save() -> None:
        if ranks.leads:
            folder.sync_metrics()  # a checkpoint must never outlive the rows it counts
            folder.checkpoints.save(state)

    try:
        while state.finished_rounds < recipe.training.rounds:
            state, row = trainer.next_round(state)
            observer.on_round(row)
            last = state.finished_rounds == recipe.training.rounds
            if last or state.finished_rounds % recipe.checkpoint.every_rounds == 0:
                save()
                saved_rounds = state.finished_rounds
    except (KeyboardInterrupt, LostRank, torch.OutOfMemoryError) as stop:
        if state.finished_rounds > saved_rounds:
            with uninterrupted():
                save()
        if isinstance(stop, torch.OutOfMemoryError):
            raise InvalidInput(
                f"the device's memory gave out in round {state.finished_rounds + 1}: lower training.batch_size = "
                f"{recipe.training.batch_size}, raise engine.memory_gib where it is set, or free the device."
            ) from stop
        raise
    return state, trainer.federation


def _starting_state(federation: Federation, folder: RunFolder) -> tuple[TrainingState, list[str]]:
    """Return the state to train on from, on the CPU, and the damaged checkpoints; cut the metrics back to it."""
    state, damaged = folder.checkpoints.load_latest()
    if state is None:
        flat, server = federation.initial_weights().cpu(), build_server(federation.recipe, federation.method)
        state = TrainingState(0, flat, federation.method.initial_state(), server_state=server.initial_state(flat))
    folder.checkpoints.require_size(state.flat, federation.method.network.layout.size)
    folder.mend_released()
    folder.cut_metrics(state.metrics_bytes)
    return state, damaged


class _RoundTrainer:
    """Takes a run from one state to the next."""

    def __init__(self, federation: Federation, folder: RunFolder, ranks: Ranks, client_source: ClientSource) -> None:
        self.federation = replace(federation, validation=client_source.validation(federation))
        self._folder, self._ranks, self._client_source = folder, ranks, client_source
        self._selection = build_selection(federation.recipe)
        self._sgd = build_sgd(federation.recipe, federation.method)
        self._server = build_server(federation.recipe, federation.method)
        self._engine, self._policy = client_source.engine(federation), federation.update_policy()
        self._central = build_central_privacy(federation.recipe)
        self._further_sizes = further_sizes(federation.outline, federation.partition.shards.sizes)
        if ranks.size > 1:
            self._engine = DistributedEngine(self._engine, ranks, federation.preparation)
        self._pace = build_pace(federation.recipe)
        if federation.recipe.population.source != "fleet":
            speeds = build_speeds(federation.recipe, federation.population.names)
            if speeds is not None:
                self._engine = PacedEngine(self._engine, self._pace, speeds, federation.preparation)

    def resume(self, state: TrainingState) -> None:
        """Take up what simulated clients were at work on when the state was saved."""

        def replan(round_index: int, memory: State, sent: torch.Tensor, asked: Sequence[int]) -> list[Assignment]:
            cohort = [self.federation.clients[index] for index in asked]
            return self._plan(memory, sent, cohort, round_index)[0]

        if isinstance(self._engine, PacedEngine):
            self._engine.resume(state.work, replan, self.federation.device)

    def next_round(self, state: TrainingState) -> tuple[TrainingState, dict[str, Any]]:
        """Run one round; validate where it is due; write the round's line of metrics."""
        training, evaluation = self.federation.recipe.training, self.federation.recipe.evaluation
        started, round_index = time.perf_counter(), state.finished_rounds
        schedule = (training.schedule, round_index, training.rounds, training.warmup_rounds)
        rate = learning_rate(self._sgd.learning_rate, *schedule)
        policy = replace(self._policy, history=state.norm_history, wire_memory=state.wire_memory)
        sent = self._server.sent(state.server_state, state.flat)  # once: who is asked again gets the same
        attempts = 0
        while True:
            attempts += 1
            self.federation = self._client_source.available(self.federation, round_index)
            at_work = self._engine.at_work()
            cohort = self._sample(round_index, {one.client.index for one in at_work})
            assignments, method_state = self._plan(state.method_state, sent, cohort, round_index)
            policy = replace(policy, central=self._central_round(state, sent, round_index))
            try:
                # What is too much is told by all who are at work: a few who are asked may be one alone.
                weighed = policy.weighed([*at_work, *assignments])[len(at_work) :]
                ahead = self._ahead(round_index + 1)
                order = RoundOrder(sent, weighed, round_index, rate, policy, ahead, state.method_state)
                result = self._engine.run_round(order)
                break
            except TooFewAnswers:
                continue  # with whoever is there by then
        if not bool(torch.isfinite(result.flat).all()):
            rate_of = "training" if self._sgd.learning_rate == training.learning_rate else "method"
            norm_of = "training" if self._sgd.clip_norm == training.clip_norm else "method"
            raise InvalidInput(
                f"training diverged in round {round_index + 1} (weights that are not finite): lower "
                f"{rate_of}.learning_rate = {self._sgd.learning_rate} or {norm_of}.clip_norm = {self._sgd.clip_norm}."
            )
        merged = Merged(sent, result.flat, result.answered)
        flat, server_state = self._server.server_step(state.server_state, state.flat, merged)
        if flat is not result.flat and not bool(torch.isfinite(flat).all()):
            raise InvalidInput(
                f"the server's step of round {round_index + 1} led to weights that are not finite: lower "
                f"server.learning_rate = {self._server.rate}, or leave server.optimiser out."
            )
        row: dict[str, Any] = {
            "round": round_index + 1,
            "learning_rate": rate,
            "clients": [assignment.client.index for assignment in assignments],
            "steps": result.num_steps,
            "payload_parameters": sum(assignment.slice_map.payload for assignment in assignments),
            "bytes_down": result.carried.bytes_down,
            "bytes_up": result.carried.bytes_up,
            # Central privacy's noise is on the weights alone: losses would be told without any.
            "losses": dict(result.losses) if self._central is None else {},
            **result.notes,
        }
        if result.refusals:
            row["refused"] = [{"client": one.client, "reason": one.reason} for one in result.refusals]
        if attempts > 1:
            row["attempts"] = attempts
        if result.setup_seconds:
            row["setup_seconds"] = round(result.setup_seconds, 4)  # of the round's seconds
        best = state.best
        if (round_index + 1) % evaluation.every_rounds == 0 or round_index + 1 == training.rounds:
            judged, notes = self._judge(round_index + 1, flat, self._server.averaged(server_state))
            row |= {**notes, **self._spent(round_index + 1)}
            if best is None or self.federation.validation.better(judged.score, best.score):
                best = judged
        row["seconds"] = round(time.perf_counter() - started, 4)
        metrics_bytes = self._folder.append_metrics(row) if self._ranks.leads else 0
        wire_memory = state.wire_memory.after(result.carried.changed, policy.wire.most_bytes)
        after = TrainingState(
            *(round_index + 1, flat, method_state, best, metrics_bytes, result.history),
            server_state=server_state,
            work=self._engine.work(),
            wire_memory=wire_memory,
        )
        return after, row

    def _judge(
        self, finished_rounds: int, flat: torch.Tensor, average: torch.Tensor | None
    ) -> tuple[Best, dict[str, Any]]:
        """Validate the global vector, and its running average where there is one; return the better, and notes."""
        curve = self._validate(flat)
        judged = Best(finished_rounds, self._score(curve), flat)
        if average is None:
            return judged, {"validation_score": judged.score, **curve.notes, **self._sizes(judged, curve)}
        curve_of_average = self._validate(average)
        other = Best(finished_rounds, self._score(curve_of_average), average, "average")
        scores = {one.vector: one.score for one in (judged, other)}
        if self.federation.validation.better(other.score, judged.score):
            judged, curve = other, curve_of_average
        told = {"validation_score": judged.score, "validation_scores": scores, "served_vector": judged.vector}
        return judged, {**told, **curve.notes, **self._sizes(judged, curve)}

    def _sizes(self, judged: Best, curve: Curve) -> dict[str, Any]:
        """Return the value of every validated size for the line of metrics; further sizes are measured here."""
        if self.federation.recipe.evaluation.sizes == "none":
            return {}
        points = curve.points
        measured = {point.name for point in points}  # more than at the start, where a fleet has grown
        further = [point for point in self._further_sizes if point.name not in measured]
        if further:
            # By themselves, so that what chooses is measured as it would be without them.
            points += self._measure(judged.flat, further).points
            # By place, since several may have one price.
            places = {point.name: at for at, point in enumerate(self.federation.method.operating_points())}
            points = tuple(sorted(points, key=lambda point: places[point.name]))
        return {"validation_sizes": [{"name": one.name, "macs": one.macs, "value": one.value} for one in points]}

    def _plan(
        self, memory: State, sent: torch.Tensor, cohort: Sequence[Client], round_index: int
    ) -> tuple[list[Assignment], State]:
        if not cohort:
            return [], memory
        generator = named_generator(self.federation.recipe.seed, "plan", round_index)
        return self.federation.method.plan_round(memory, sent, cohort, round_index, generator)

    def _central_round(self, state: TrainingState, sent: torch.Tensor, round_index: int) -> CentralRound | None:
        """Return what the server's noise needs in a round, nothing of which depends on who was drawn for it.

        A fleet's round is noted before it can spend any privacy.
        """
        if self._central is None:
            return None
        federation = self.federation
        if federation.recipe.population.source == "fleet":
            self._folder.append_release(round_index, self._rate())
        eligible = [federation.clients[index] for index in federation.participants]
        parts = (federation.method, state.method_state, sent, eligible, self._rate(), round_index)
        seed = int.from_bytes(self._generator("round", round_index, "noise on the sum").bytes(16))
        return CentralRound(self._central, expected_holders(*parts), seed)

    def _spent(self, finished_rounds: int) -> dict[str, float]:
        """Return epsilon after so many rounds, where the server adds noise."""
        if self._central is None:
            return {}
        return {"epsilon": spent_centrally(self._central, self._folder.releases(self._rate(), finished_rounds))}

    def _rate(self) -> float:
        """Return the chance with which a client takes part in a round."""
        return sampling_rate(len(self.federation.participants), self.federation.recipe.training.clients_per_round)

    def _generator(self, *name: str | int) -> np.random.Generator:
        """Return the generator of a name; where a fleet counts on nobody knowing it, one that nobody can know."""
        recipe = self.federation.recipe
        if self._central is not None and recipe.population.source == "fleet":
            return np.random.default_rng()  # every node knows the recipe's seed
        return named_generator(recipe.seed, *name)

    def _sample(self, round_index: int, at_work: Set[int] = frozenset()) -> list[Client]:
        """Draw whom a round asks, of those who are not at work already."""
        federation, rule = self.federation, self.federation.recipe.training.cohort
        eligible, size = self._pace.free(federation.participants, at_work)
        if not eligible or not size:
            return []
        sampled = draw_cohort(rule, eligible, size, round_index, self._generator("cohort", round_index))
        return [federation.clients[index] for index in sampled]

    def _ahead(self, round_index: int) -> list[Client]:
        """Return who a round to come will ask, where the engine makes use of it."""
        is_useful = self._engine.prepares_ahead and round_index < self.federation.recipe.training.rounds
        return self._sample(round_index) if is_useful else []

    def _score(self, curve: Curve) -> float:
        """Return the figure by which rounds are compared."""
        points, budgets = self.federation.method.operating_points(), self.federation.population.budgets_macs
        return self._selection.score(curve, points, budgets)

    def _validate(self, flat: torch.Tensor) -> Curve:
        """Return the validation curve, measured at the points that the choice among rounds needs."""
        federation, budgets = self.federation, self.federation.population.budgets_macs
        needed = self._selection.points(federation.method.operating_points(), budgets)
        curve = self._measure(flat, needed)
        if curve.points:
            return curve
        if federation.recipe.evaluation.by == "clients":
            raise InvalidInput(
                "no client could evaluate any network: evaluation.by = 'clients' needs clients with two examples or "
                "more that afford one; set evaluation.by=server."
            )
        raise InvalidInput(
            f"no network can be validated: the largest budget, {budgets.max(initial=0):.0f} MACs, affords none; raise "
            "the budgets or set evaluation.selection=largest."
        )

    def _measure(self, flat: torch.Tensor, points: Sequence[OperatingPoint]) -> Curve:
        federation = self.federation
        return measure_curve(self._ranks, federation.validation, federation.method, flat, points)
