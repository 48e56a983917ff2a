"""Runs whose server steps, looks ahead or averages: what is sent, kept, validated, served and gone on from."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TINY
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Curve, CurvePoint, Evaluator
from fedfeast.evaluation.evaluator import OnPoint
from fedfeast.federation import Collected, Engine, Method, OperatingPoint, RoundOrder, TooFewAnswers
from fedfeast.presentation.report import write_report
from fedfeast.presentation.tables import describe_run
from fedfeast.randomness import named_generator
from fedfeast.runs import Interrupted, Run
from fedfeast.runs.assembly import Federation
from fedfeast.runs.checkpoint import TrainingState
from fedfeast.runs.training import Silent, SimulatedClients
from fedfeast.server.answers import describe_run as describe_watched
from fedfeast.server.shown.watched_run import WatchedRun
from fedfeast.serving.bundle import describe_bundle, extract
from fedfeast.serving.choice import Limits

SHORT: dict[str, Any] = {
    **TINY,
    "training.rounds": 4,
    "training.clients_per_round": 2,
    "evaluation.every_rounds": 2,
    "checkpoint.every_rounds": 1,
}
SERVERS: dict[str, dict[str, Any]] = {
    "momentum": {"server.optimiser": "momentum"},
    "adam and average": {"server.optimiser": "adam", "server.average": 0.8},
    "lookahead and average": {"server.lookahead": 0.8, "server.average": 0.8},
}
LOOKAHEAD = {**SHORT, "server.lookahead": 0.8}


class Recording(Engine):
    """Remembers every order, and the norms that were found; fails a round's first try where asked to."""

    def __init__(self, inner: Engine, fails_first: bool = False) -> None:
        self.method, self._inner, self._fails = inner.method, inner, fails_first
        self.orders, self.norms = list[RoundOrder](), list[Sequence[float]]()

    def collect(self, order: RoundOrder) -> Collected:
        self.orders.append(order)
        if self._fails and sum(one.round_index == order.round_index for one in self.orders) == 1:
            raise TooFewAnswers
        collected = self._inner.collect(order)
        self.norms.append(collected.norms)
        return collected


class Recorded(SimulatedClients):
    def __init__(self, fails_first: bool = False) -> None:
        self._fails = fails_first

    def engine(self, federation: Federation) -> Engine:
        self.recording = Recording(federation.engine(), self._fails)
        return self.recording


class Watching(Silent):
    """Reads the checkpoint after every round; each round is saved before the next begins."""

    def __init__(self, run: Run) -> None:
        self.run, self.states = run, list[TrainingState]()

    def on_round(self, row: dict[str, Any]) -> None:
        self.look()

    def look(self) -> None:
        state, _ = self.run.folder.checkpoints.load_latest()
        if state is not None:
            self.states.append(state)


class StopAfter(Silent):
    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise KeyboardInterrupt


def recorded(path: Path, settings: dict[str, Any], fails_first: bool = False) -> tuple[list[RoundOrder], list[Tensor]]:
    """Train; return the orders, and the global vector before every round and at the end."""
    run, clients = Run.create("digits", path, settings), Recorded(fails_first)
    watching = Watching(run)
    run.train(watching, clients)
    watching.look()
    return clients.recording.orders, [run.federation.initial_weights(), *(state.flat for state in watching.states)]


def last_state(run: Run) -> TrainingState:
    state, _ = run.folder.checkpoints.load_latest()
    assert state is not None
    return state


def routed(order: RoundOrder) -> Tensor:
    found = torch.zeros(order.flat.numel(), dtype=torch.bool)
    for assignment in order.assignments:
        found[assignment.slice_map.index().long()] = True
    return found


def test_clients_are_sent_what_lies_ahead_and_nobody_else_moves(tmp_path: Path) -> None:
    orders, flats = recorded(tmp_path / "run", LOOKAHEAD)
    assert torch.equal(orders[0].flat, flats[0])
    for number in (1, 2, 3):
        ahead = flats[number] + 0.8 * (flats[number] - flats[number - 1])
        assert torch.equal(orders[number].flat, ahead)
        assert not torch.equal(ahead, flats[number])
    seen = torch.zeros_like(flats[0], dtype=torch.bool)
    for order, before, after in zip(orders, flats[:-1], flats[1:], strict=True):
        here = routed(order)
        assert torch.equal(before[~here], after[~here])
        assert not torch.equal(before[here], after[here])
        left = seen & ~here
        seen |= here
    assert bool(left.any()), "some positions moved earlier, and had nobody in the last round"


def test_who_is_asked_again_gets_the_same_vector(tmp_path: Path) -> None:
    orders, _ = recorded(tmp_path / "run", {**LOOKAHEAD, "training.rounds": 3}, fails_first=True)
    assert [order.round_index for order in orders] == [0, 0, 1, 1, 2, 2]
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        assert torch.equal(first.flat, second.flat)


@pytest.mark.parametrize("rule", ["mean", "median"])
def test_changes_are_measured_from_what_was_sent(tmp_path: Path, rule: str) -> None:
    settings = {**LOOKAHEAD, "training.clients_per_round": 1, "aggregation.rule": rule}
    settings |= {"aggregation.clip_multiple": 1e3, "aggregation.refuse_multiple": 1e3}
    run, clients = Run.create("digits", tmp_path / "run", settings), Recorded()
    watching = Watching(run)
    run.train(watching, clients)
    norms, orders = clients.recording.norms, clients.recording.orders
    assert len(watching.states) == 3
    for order, state in zip(orders[:-1], watching.states, strict=True):
        here = routed(order)
        before = orders[0].flat if state.finished_rounds == 1 else watching.states[state.finished_rounds - 2].flat
        assert torch.equal(state.flat[~here], before[~here])
        # The server moves to where the one client of the round went, from what it was sent.
        (norm,) = norms[order.round_index]
        assert float((state.flat - order.flat)[here].norm()) == pytest.approx(norm, rel=1e-4)
        if order.round_index == 2:
            assert float((state.flat - before)[here].norm()) != pytest.approx(norm, rel=1e-2)


@pytest.mark.parametrize("name", SERVERS)
def test_a_stopped_run_goes_on_to_the_same_bits(name: str, tmp_path: Path) -> None:
    settings = {**SHORT, **SERVERS[name]}
    unbroken = Run.create("digits", tmp_path / "unbroken", settings).train()
    with pytest.raises(Interrupted, match="after round 3"):
        Run.create("digits", tmp_path / "broken", settings).train(StopAfter())
    broken = Run.create("digits", tmp_path / "broken", settings).train()
    ours, theirs = last_state(broken), last_state(unbroken)
    assert ours.server_state.keys() == theirs.server_state.keys() != set()
    assert all(torch.equal(one, theirs.server_state[key]) for key, one in ours.server_state.items())
    assert torch.equal(ours.flat, theirs.flat)
    assert torch.equal(broken.best().flat, unbroken.best().flat)
    assert broken.best().vector == unbroken.best().vector
    assert broken.curve == unbroken.curve
    plain = Run.create("digits", tmp_path / "plain", SHORT).train()
    assert not torch.equal(theirs.flat, last_state(plain).flat)
    assert last_state(plain).server_state == {}
    assert "served_vector" not in plain.summary


class Scripted(Evaluator):
    """Gives the next of some accuracies, and remembers which vector it was asked about."""

    accuracies: list[float]
    asked: list[Tensor]

    def curve(
        self, method: Method, flat: Tensor, points: Sequence[OperatingPoint], on_point: OnPoint = lambda point: None
    ) -> Curve:
        self.asked.append(flat)
        accuracy = self.accuracies.pop(0)
        return Curve(tuple(CurvePoint(point.name, point.macs, point.parameters, accuracy) for point in points))


def scripted(federation: Federation, accuracies: list[float]) -> tuple[Federation, list[Tensor]]:
    own = federation.validation
    assert isinstance(own, Evaluator)
    one = Scripted(own.calibration, own.test, own.normalisation)
    object.__setattr__(one, "accuracies", accuracies)
    object.__setattr__(one, "asked", [])
    return replace(federation, validation=one), one.asked


@pytest.mark.parametrize(
    ("accuracies", "served", "vector"),
    [((0.2, 0.3, 0.5, 0.4), 4, "global"), ((0.5, 0.4, 0.3, 0.6), 4, "average"), ((0.3, 0.3, 0.2, 0.1), 2, "global")],
)
def test_the_better_of_vector_and_average_is_served_and_said(
    tmp_path: Path, accuracies: tuple[float, ...], served: int, vector: str
) -> None:
    run = Run.create("digits", tmp_path / "run", {**SHORT, "server.average": 0.8})
    run.federation, asked = scripted(run.federation, list(accuracies))
    with pytest.raises(Interrupted):  # the end would be measured with what is not scripted
        run.train(_Ending())
    rows, best, state = run.folder.metrics(), run.best(), last_state(run)
    judged = [row for row in rows if "validation_score" in row]
    expected = list(zip(accuracies[::2], accuracies[1::2], strict=True))
    assert [(row["validation_scores"]["global"], row["validation_scores"]["average"]) for row in judged] == expected
    assert [row["validation_score"] for row in judged] == [max(pair) for pair in expected]
    assert [row["served_vector"] for row in judged] == ["average" if b > a else "global" for a, b in expected]
    assert (best.finished_rounds, best.vector, best.score) == (served, vector, max(accuracies))
    assert torch.equal(best.flat, asked[accuracies.index(max(accuracies))].cpu())
    assert torch.equal(asked[2], state.flat)
    assert torch.equal(asked[3], state.server_state["average"])
    assert not torch.equal(asked[2], asked[3])

    finished = Run.open(tmp_path / "run").train()  # only the end is left
    assert (finished.summary["served_vector"], finished.summary["best_round"]) == (vector, served)
    words = {"global": f"{served}, the global vector itself", "average": f"{served}, the running average"}[vector]
    told = describe_run({**finished.summary, "picture": "none"}, finished.folder.budgets_macs())
    assert any(f"best validated round {words}" in str(line) for line in told)
    page = write_report([finished], tmp_path / "report.html")[0].read_text()
    assert words in page
    assert "the global vector itself" in page
    manifest = extract(finished, tmp_path / "bundle", Limits(max_macs=1e9))
    assert manifest["run"]["served_vector"] == vector
    assert describe_bundle(manifest).endswith(f", round {words}")
    assert f"round {words};" in (tmp_path / "bundle" / "README.md").read_text()
    seen = describe_watched(WatchedRun(tmp_path / "run", "run"), ["run"])
    assert (seen.served_round, seen.served_vector) == (served, vector)


class _Ending(Silent):
    def on_evaluation(self, measured: int, total: int) -> None:
        raise KeyboardInterrupt


def test_a_server_that_steps_too_far_is_a_sentence(tmp_path: Path) -> None:
    settings = {**SHORT, "server.optimiser": "momentum", "server.learning_rate": 1e45}
    sentence = r"the server's step of round 1 led to weights that are not finite: lower server.learning_rate = 1e\+45"
    with pytest.raises(InvalidInput, match=sentence):
        Run.create("digits", tmp_path / "run", settings).train()


def test_thresholds_are_planned_by_what_is_sent(tmp_path: Path) -> None:
    orders, _ = recorded(tmp_path / "run", {**LOOKAHEAD, "method.name": "fiarse", "training.rounds": 3})
    method = Run.open(tmp_path / "run").federation.method
    for order in orders:
        for assignment in order.assignments:
            generator = named_generator(0, "plan")
            planned, _ = method.plan_round({}, order.flat, [assignment.client], order.round_index, generator)
            for key, constant in assignment.constants.items():
                assert torch.equal(planned[0].constants[key], constant)
