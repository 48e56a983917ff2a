import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from tiny import SPACE, TINY, TORN_SPACE

from fedfeast.data import Augmentation, Examples, Mixing, Normalisation, Preparation, ShardedExamples
from fedfeast.engines import EagerEngine, GraphEngine, Precision
from fedfeast.engines.graphs.memory import Arrangement
from fedfeast.engines.graphs.slots import Slot
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, LocalSgd, Pass, RoundOrder, RoundResult
from fedfeast.methods import Feast
from fedfeast.networks import Architecture, ElasticResNet
from fedfeast.population import Shards
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_sgd
from fedfeast.runs.assembly import Federation, assemble
from fedfeast.variants import Variant, VariantCache

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WHOLE = Precision(torch.float64, torch.float64)
RATE = 0.1
CASES: dict[str, Mapping[str, Any]] = {
    rule: {"method.rule": rule} for rule in ("full", "global-min", "local-max", "min-max", "min-max-distilled")
}
CASES["prior"] = {"training.class_prior": 1.5}
CASES["prior of exits"] = {"method.name": "scalefl", "training.class_prior": 1.0}
CASES["cheaper"] = {
    **{"method.smallest_share": 0.5, "method.student_batch": 0.4, "method.sampling": "inverse-macs"},
    **{"training.class_prior": 1.0, "training.last_batch": "short"},
}
CASES["fedavg"] = {"method.name": "fedavg", "method.max_macs": 4e5}
CASES["signed"] = {"network.branch": "signed", "network.branch_scale": 0.2}


@cache
def federation(case: str) -> Federation:
    augmented = {
        "augmentation.randaugment": [2, 6],
        "augmentation.crop_padding": 1,
        "augmentation.mixing": "alternate",
        "engine.precision": "float64",
    }
    return assemble(load_recipe("digits", {**TINY, **augmented, **CASES[case]}))


def engines(built: Federation, sgd: LocalSgd | None = None) -> tuple[EagerEngine, GraphEngine]:
    sgd = LocalSgd(5e-3, 5.0) if sgd is None else sgd
    parts = (built.method, built.examples, built.preparation, sgd, built.recipe.seed)
    return EagerEngine(*parts, torch.float64, built.device), GraphEngine(*parts, WHOLE, built.device)


def cohort(built: Federation, count: int) -> list[Assignment]:
    # Of the whole range of budgets, so that some clients hold much and train long.
    by_budget = sorted((built.clients[index] for index in built.participants), key=lambda one: one.budget_macs)
    chosen = [by_budget[int(place)] for place in np.linspace(0, len(by_budget) - 1, count)]
    return built.method.plan_round({}, built.initial_weights(), chosen, 0, named_generator(0))[0]


def test_room_is_made_for_steps_that_come_later() -> None:
    feast = federation("full").method
    assert isinstance(feast, Feast)
    assert feast.fullest_step() == []
    growing = replace(feast, progressive=0.5, rounds=10, smallest_share=0.5)
    assert len(growing.fullest_step()) == 3
    assert growing.fullest_step()[0] == Pass(feast.cache[-1].architecture, "teacher")


@pytest.mark.parametrize("case", CASES)
def test_rounds_equal_eager_ones(case: str) -> None:
    built = federation(case)
    eager, graphs = engines(built)
    planned = cohort(built, 4)
    weights = [built.initial_weights()] * 2
    num_steps = 0
    for round_index in range(2):
        before = weights[0]
        one = eager.run_round(RoundOrder(weights[0], planned, round_index, RATE))
        other = graphs.run_round(RoundOrder(weights[1], planned, round_index, RATE))
        weights = [one.flat, other.flat]
        assert float((other.flat - one.flat).norm() / (one.flat - before).norm()) < 1e-6
        assert other.num_steps == one.num_steps
        assert other.losses == pytest.approx(one.losses, rel=1e-6)
        num_steps += one.num_steps
    assert num_steps >= 12


OPTIMISERS: dict[str, LocalSgd] = {
    "momentum": LocalSgd(5e-3, 5.0, momentum=0.9),
    "unclipped": LocalSgd(5e-3, float("inf"), momentum=0.5),
    "kept": LocalSgd(5e-2, 5.0, unreached="keep"),
    "kept with momentum": LocalSgd(5e-2, 5.0, momentum=0.9, unreached="keep"),
}


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("case", ["full", "global-min"])  # with global-min most of what is sent is never activated
def test_rounds_of_every_optimiser_equal_eager_ones(case: str, name: str) -> None:
    built = federation(case)
    eager, graphs = engines(built, OPTIMISERS[name])
    flat, planned = built.initial_weights(), cohort(built, 3)
    for round_index in range(2):  # a velocity that outlived its client would show
        expected, got = (engine.run_round(RoundOrder(flat, planned, round_index, RATE)) for engine in (eager, graphs))
        assert apart(got, expected, flat) < 1e-6
        assert got.losses == pytest.approx(expected.losses, rel=1e-6)


class ByTurns(Feast):
    """The two smallest networks by turns, in a large envelope: much is never activated, and some only now and then."""

    def assign(self, client: Client) -> Assignment:
        sent = super().assign(client)
        return replace(sent, architectures=sent.architectures[:2])

    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        return [Pass(assignment.architectures[step % 2], "supervised")]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_is_never_activated_changes_where_its_tensor_is_reached(momentum: float) -> None:
    built = federation("full")
    assert isinstance(built.method, Feast)
    method = ByTurns(built.method.network, built.method.cache)
    parts = (method, built.examples, built.preparation, LocalSgd(5e-2, 5.0, momentum, unreached="keep"), 0)
    richest = max(built.clients, key=lambda one: one.budget_macs)
    flat, planned = built.initial_weights(), [method.assign(richest)]
    eager, graphs = EagerEngine(*parts, torch.float64), GraphEngine(*parts, WHOLE, built.device)
    passive = graphs.context.positions(planned[0])[1].long()
    expected, got = (engine.run_round(RoundOrder(flat, planned, 0, RATE)) for engine in (eager, graphs))
    assert expected.num_steps >= 3
    shares = got.flat[passive] / flat[passive]
    assert len(torch.unique(shares[flat[passive] != 0].round(decimals=9))) == 3, "at every step, at some, at none"
    assert apart(got, expected, flat) < 1e-6
    torch.testing.assert_close(got.flat[passive], expected.flat[passive], rtol=1e-12, atol=0)


SHORT = {"training.last_batch": "short"}
BATCHES: dict[str, Mapping[str, Any]] = {
    "short": SHORT,
    "short, two epochs": {**SHORT, "training.local_epochs": 2, "training.momentum": 0.9, "training.unreached": "keep"},
    "short ones left out": {**SHORT, "training.least_distinct": 20},
    "small shards left out": {"training.least_distinct": 20},
    "plain networks": {**SHORT, "method.name": "heterofl"},
}


@pytest.mark.parametrize("name", BATCHES)
def test_rounds_of_uneven_batches_equal_eager_ones(name: str) -> None:
    mixed = {"augmentation.mixing": "alternate", "engine.precision": "float64"}
    built = assemble(load_recipe("digits", {**TINY, **mixed, **BATCHES[name]}))
    by_size = sorted((built.clients[index] for index in built.participants), key=lambda one: one.num_examples)
    chosen, flat = [by_size[0], by_size[len(by_size) // 2], by_size[-1]], built.initial_weights()
    planned = built.method.plan_round(built.method.initial_state(), flat, chosen, 0, named_generator(0))[0]
    parts = (built.method, built.examples, built.preparation, build_sgd(built.recipe, built.method), 0)
    eager, graphs = EagerEngine(*parts, torch.float64, built.device), GraphEngine(*parts, WHOLE, built.device)
    for round_index in range(2):
        expected, got = (engine.run_round(RoundOrder(flat, planned, round_index, RATE)) for engine in (eager, graphs))
        assert apart(got, expected, flat) < 1e-6
        assert got.num_steps == expected.num_steps
        assert got.num_steps == sum(built.preparation.count_steps(one.num_examples) for one in chosen)
        assert got.losses == pytest.approx(expected.losses, rel=1e-6)


def test_rounded_rounds_of_uneven_batches_are_near() -> None:
    built = assemble(load_recipe("digits", {**TINY, **SHORT, "training.momentum": 0.9}))
    parts = (built.method, built.examples, built.preparation, build_sgd(built.recipe, built.method), 0)
    planned, flat = cohort(built, 4), built.initial_weights()
    eager = EagerEngine(*parts, torch.float32, built.device).run_round(RoundOrder(flat, planned, 0, 0.02))
    graphs = GraphEngine(*parts, Precision(), built.device).run_round(RoundOrder(flat, planned, 0, 0.02))
    assert apart(graphs, eager, flat) < 0.15  # bfloat16, over several steps
    assert graphs.losses == pytest.approx(eager.losses, rel=0.02)


def test_a_cohort_without_a_single_batch_changes_nothing() -> None:
    built = assemble(load_recipe("digits", {**TINY, "training.least_distinct": 3, "engine.precision": "float64"}))
    smallest = min((built.clients[index] for index in built.participants), key=lambda one: one.num_examples)
    assert smallest.num_examples < 3
    flat = built.initial_weights()
    planned = built.method.plan_round({}, flat, [smallest], 0, named_generator(0))[0]
    for engine in engines(built):
        result = engine.run_round(RoundOrder(flat, planned, 0, RATE))
        torch.testing.assert_close(result.flat, flat, rtol=1e-15, atol=0)
        assert (result.num_steps, result.losses) == (0, {})


def apart(got: RoundResult, expected: RoundResult, start: torch.Tensor) -> float:
    """Return how far two results are from each other, as a share of how far a round leads."""
    return float((got.flat - expected.flat).norm() / (expected.flat - start).norm())


def test_more_clients_than_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    built = federation("full")
    planned, flat = cohort(built, 4), built.initial_weights()
    eager, graphs = engines(built)
    expected = eager.run_round(RoundOrder(flat, planned, 0, RATE))
    monkeypatch.setattr("fedfeast.engines.graphs.engine.MOST_SLOTS", 2)
    got = graphs.run_round(RoundOrder(flat, planned, 0, RATE))
    assert apart(got, expected, flat) < 1e-6
    assert got.losses == pytest.approx(expected.losses, rel=1e-6)


def test_clients_that_find_no_room_wait_their_turn(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    built = federation("full")
    planned, flat = cohort(built, 3), built.initial_weights()
    eager, graphs = engines(built)
    monkeypatch.setattr("fedfeast.engines.graphs.engine.arrangement_that_fits", lambda *_: Arrangement(1, 3))
    with caplog.at_level(logging.WARNING, "fedfeast"):
        results = [graphs.run_round(RoundOrder(flat, planned, round_index, RATE)) for round_index in (0, 0)]
    expected = eager.run_round(RoundOrder(flat, planned, 0, RATE))
    assert torch.equal(results[0].flat, results[1].flat)
    assert apart(results[0], expected, flat) < 1e-6
    assert [record.getMessage() for record in caplog.records] == [
        "the device's memory has room for 1 of 3 clients at once: the others wait their turn"
    ]


def test_a_cohort_of_one_then_of_more() -> None:
    built = federation("min-max-distilled")
    eager, graphs = engines(built)
    flat = built.initial_weights()
    for count in (1, 3, 1):
        planned = cohort(built, count)
        expected, got = (engine.run_round(RoundOrder(flat, planned, count, RATE)) for engine in (eager, graphs))
        assert apart(got, expected, flat) < 1e-6
        assert got.losses == pytest.approx(expected.losses, rel=1e-6)


def test_an_empty_cohort_changes_nothing() -> None:
    built = federation("full")
    _, graphs = engines(built)
    flat = built.initial_weights()
    result = graphs.run_round(RoundOrder(flat, [], 0, RATE))
    assert torch.equal(result.flat, flat)
    assert (result.num_steps, result.losses) == (0, {})


def test_the_same_round_gives_the_same_bits() -> None:
    built = federation("full")
    planned, flat = cohort(built, 3), built.initial_weights()
    one, other = (engines(built)[1].run_round(RoundOrder(flat, planned, 0, RATE)) for _ in range(2))
    assert torch.equal(one.flat, other.flat)
    assert one.losses == other.losses


def test_knowing_who_comes_next_changes_nothing() -> None:
    built = federation("full")
    planned, other = cohort(built, 4), cohort(built, 3)
    orders = [planned, other, planned, planned]
    results = []
    for knows in (False, True):
        engine, weights, losses = engines(built)[1], built.initial_weights(), list[Mapping[str, float]]()
        for round_index, assignments in enumerate(orders):
            to_come = orders[round_index + 1] if round_index + 1 < len(orders) else []
            ahead = [one.client for one in to_come] if knows else []
            result = engine.run_round(RoundOrder(weights, assignments, round_index, RATE, ahead=ahead))
            weights = result.flat
            losses.append(result.losses)
        results.append((weights, losses))
    assert torch.equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]


def tiny_parts(divisor: int, sizes: tuple[int, int]) -> tuple[Feast, ShardedExamples, Preparation, LocalSgd, int]:
    """A federation of three small variants and two clients, for kernels that an interpreter runs."""
    whole = replace(SPACE, stem_channels=8, stage_channels=(8, 16))
    space = replace(whole if divisor == 8 else TORN_SPACE, image_size=5, classes=4)
    network = ElasticResNet(space)
    middle, large = Architecture((0, 0), (0.25, 0.5), (0, 0, 1)), Architecture((1, 0), (0.5, 0.5), (1, 1, 1))
    cache = VariantCache.of([Variant.of(network, one) for one in (space.smallest, middle, large)])
    generator = named_generator(0, "tiny")
    pool = Examples(
        torch.from_numpy(generator.integers(0, 256, (9, 1, 5, 5)).astype("uint8")),
        torch.from_numpy(generator.integers(0, 4, 9)),
    ).to(DEVICE)
    examples = ShardedExamples(pool, Shards(np.arange(9), np.array([0, sizes[0], sum(sizes)])))
    preparation = Preparation(4, 1, Augmentation(1, True), Mixing(), Normalisation((0.5,), (0.25,)))
    return Feast(network, cache), examples, preparation, LocalSgd(5e-3, 5.0), 0


@pytest.mark.parametrize(
    ("divisor", "sizes", "steps", "momentum"),
    [(8, (6, 3), 3, 0.9), (2, (4, 3), 2, 0.0)],
    ids=["whole chunks, momentum, short batches", "torn chunks"],
)
def test_fused_rounds_equal_eager_ones(
    divisor: int, sizes: tuple[int, int], steps: int, momentum: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("fedfeast.engines.graphs.kernels.vectors.NORM_PROGRAMS", 4)  # the interpreter is slow
    method, examples, preparation, sgd, seed = tiny_parts(divisor, sizes)
    if momentum:
        preparation = replace(preparation, last_batch="short")
        sgd = replace(sgd, momentum=momentum, unreached="keep")
    parts = (method, examples, preparation, sgd, seed)
    eager = EagerEngine(*parts, torch.float32, DEVICE)
    graphs = GraphEngine(*parts, Precision(torch.float32, torch.float32), DEVICE)
    graphs.context.fused = True
    assert graphs.context.chunk == (8 if divisor == 8 else 1)
    clients = [Client(0, "rich", 1e9, sizes[0]), Client(1, "poor", float(method.cache[0].macs), sizes[1])]
    planned, _ = method.plan_round({}, method.network.layout.zeros(torch.float32), clients, 0, named_generator(0))
    flat = method.network.initial_weights(named_generator(0, "weights")).to(DEVICE)
    expected, got = (engine.run_round(RoundOrder(flat, planned, 0, RATE)) for engine in (eager, graphs))
    assert apart(got, expected, flat) < 1e-3
    assert got.num_steps == expected.num_steps == steps
    assert got.losses == pytest.approx(expected.losses, rel=1e-4)


def test_a_round_that_runs_out_of_memory_begins_again_with_fewer_clients_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    built = federation("full")
    planned, flat = cohort(built, 4), built.initial_weights()
    eager, graphs = engines(built)
    expected = eager.run_round(RoundOrder(flat, planned, 0, RATE))
    step, calls = Slot.step, [0]

    def failing_once(slot: Slot, *arguments: Any) -> None:
        calls[0] += 1
        if calls[0] == 6:
            raise torch.OutOfMemoryError
        step(slot, *arguments)

    monkeypatch.setattr(Slot, "step", failing_once)
    with caplog.at_level(logging.WARNING, "fedfeast"):
        got = graphs.run_round(RoundOrder(flat, planned, 0, RATE))
    assert apart(got, expected, flat) < 1e-6
    assert got.losses == pytest.approx(expected.losses, rel=1e-6)
    assert got.num_steps == expected.num_steps
    assert "room for 2 of 4 clients" in caplog.text


def test_too_little_memory_for_one_client_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    built = federation("full")
    _, graphs = engines(built)

    def failing(slot: Slot, *arguments: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Slot, "step", failing)
    sentence = r"too small for one client with training.batch_size = 32: lower it, let it take about 0\.8 GiB"
    with pytest.raises(InvalidInput, match=sentence):
        graphs.run_round(RoundOrder(built.initial_weights(), cohort(built, 4), 0, RATE))
