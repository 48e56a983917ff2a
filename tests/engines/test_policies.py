"""Rounds with robust rules, liars and noise: both engines agree, and one process agrees with itself."""

from functools import cache
from typing import Any

import pytest
import torch
from tiny import TINY

from fedfeast.engines import DistributedEngine, EagerEngine, GraphEngine, Precision
from fedfeast.engines.ranks import Ranks
from fedfeast.federation import (
    Accumulator,
    Adversary,
    Aggregation,
    CentralPrivacy,
    CentralRound,
    Engine,
    LocalSgd,
    NormHistory,
    Privacy,
    RoundOrder,
    RoundResult,
    UpdatePolicy,
    Wire,
    expected_holders,
)
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import Federation, assemble

RATE = 0.1
COHORT = 4
ENGINES = ("eager", "graphs", "alone")
POLICIES = {
    "clipped mean": UpdatePolicy(Aggregation("clipped-mean"), history=NormHistory((0.05,))),
    "first clipped mean": UpdatePolicy(Aggregation("clipped-mean")),
    "trimmed mean": UpdatePolicy(Aggregation("trimmed-mean"), adversary=Adversary(frozenset({1}))),
    "median": UpdatePolicy(Aggregation("median")),
    "norm check": UpdatePolicy(
        Aggregation(refuse_multiple=3.0), adversary=Adversary(frozenset({1}), 1e4), history=NormHistory((1.0,))
    ),
    "privacy": UpdatePolicy(privacy=Privacy(0.1, 0.01)),
    "activated": UpdatePolicy(Aggregation(activated_share=True)),
    "activated, looked at": UpdatePolicy(
        Aggregation(refuse_multiple=1e3, activated_share=True), history=NormHistory((1.0,))
    ),
    "int8 both ways": UpdatePolicy(wire=Wire("int8", "int8")),
    "bfloat16 back, with noise": UpdatePolicy(privacy=Privacy(0.1, 0.01), wire=Wire(up="bfloat16")),
    "int8 there, all of it back": UpdatePolicy(wire=Wire("int8")),
    "the largest values": UpdatePolicy(Aggregation("median"), wire=Wire("bfloat16", "int8", 0.1)),
    "int8, activated": UpdatePolicy(Aggregation(activated_share=True), wire=Wire("int8", "int8")),
    "activated, with noise": UpdatePolicy(Aggregation(activated_share=True), Privacy(0.1, 0.01)),
}
METHODS: dict[str, dict[str, Any]] = {
    "feast": {},
    "feast, smallest alone": {"method.rule": "global-min"},
    "heterofl": {"method.name": "heterofl", "method.label_row_merging": True},
    "fedrolex": {"method.name": "fedrolex"},
    "fiarse": {"method.name": "fiarse"},
}

CASES = [("feast", policy) for policy in POLICIES]
CASES += [("heterofl", "trimmed mean"), ("fedrolex", "median"), ("fiarse", "trimmed mean"), ("fiarse", "privacy")]
CASES += [(method, "int8 both ways") for method in METHODS if method != "feast"]
CASES += [(method, "activated") for method in METHODS if method != "feast"]


@cache
def federation(method: str) -> Federation:
    return assemble(load_recipe("digits", {**TINY, **METHODS[method], "engine.precision": "float64"}))


def run(engine: str, method: str, policy: UpdatePolicy, cohort_size: int = COHORT) -> tuple[RoundResult, torch.Tensor]:
    built = federation(method)
    sgd = built.method.optimiser(LocalSgd(5e-3, 5.0))
    parts = (built.method, built.examples, built.preparation, sgd, built.recipe.seed)
    whole, flat = torch.float64, built.initial_weights()
    cohort = [built.clients[index] for index in built.participants[:cohort_size]]
    planned, _ = built.method.plan_round(built.method.initial_state(), flat, cohort, 0, named_generator(0))
    planned = policy.weighed(planned) if policy.central is not None else planned
    eager = EagerEngine(*parts, whole, built.device)
    chosen: Engine = eager
    if engine == "graphs":
        chosen = GraphEngine(*parts, Precision(whole, whole), built.device)
    elif engine == "alone":
        chosen = DistributedEngine(eager, Ranks(), built.preparation)
    return chosen.run_round(RoundOrder(flat, planned, 0, RATE, policy)), flat


@pytest.mark.parametrize(("method", "policy"), CASES)
def test_engines_agree(method: str, policy: str) -> None:
    (eager, flat), (graphs, _), (alone, _) = (run(engine, method, POLICIES[policy]) for engine in ENGINES)
    moved = float((eager.flat - flat).norm())
    assert moved > 0
    assert float((graphs.flat - eager.flat).norm()) < 1e-6 * moved
    assert torch.equal(alone.flat, eager.flat)
    assert graphs.history.medians == pytest.approx(eager.history.medians, rel=1e-6)
    assert alone.history == eager.history
    named = [federation(method).clients[1].name] if policy == "norm check" else []
    assert [one.client for one in eager.refusals] == named
    assert [one.client for one in graphs.refusals] == [one.client for one in eager.refusals]


def central(method: str, multiplier: float = 0.01) -> UpdatePolicy:
    built = federation(method)
    flat = built.initial_weights()
    clients = [built.clients[index] for index in built.participants]
    holders = expected_holders(built.method, built.method.initial_state(), flat, clients, 0.1, 0)
    return UpdatePolicy(central=CentralRound(CentralPrivacy(0.1, multiplier), holders, 5))


@pytest.mark.parametrize("method", METHODS)
def test_engines_agree_on_a_noisy_sum(method: str) -> None:
    (eager, flat), (graphs, _), (alone, _) = (run(engine, method, central(method)) for engine in ENGINES)
    moved = float((eager.flat - flat).norm())
    assert moved > 0
    assert float((graphs.flat - eager.flat).norm()) < 1e-6 * moved
    assert torch.equal(alone.flat, eager.flat)
    assert torch.equal(graphs.answered, eager.answered)
    louder, _ = run("eager", method, central(method, 1e6))
    assert float((louder.flat - flat).norm()) > 100 * moved


@pytest.mark.parametrize("engine", ENGINES)
def test_nobody_may_be_drawn(engine: str) -> None:
    policy = central("feast")
    nobody, flat = run(engine, "feast", policy, cohort_size=0)
    assert nobody.num_steps == 0
    assert nobody.losses == {}
    assert (nobody.flat != flat)[policy.central.holders > 0].all()  # type: ignore[union-attr]
    for rule in ("mean", "median"):
        unchanged, _ = run(engine, "feast", UpdatePolicy(Aggregation(rule)), cohort_size=0)
        assert torch.equal(unchanged.flat, flat)


@pytest.mark.parametrize("engine", ["eager", "graphs"])
def test_everything_off_is_the_accumulators_mean_bit_for_bit(engine: str) -> None:
    treated, flat = run(engine, "feast", UpdatePolicy())
    built = federation("feast")
    checked, _ = run(engine, "feast", UpdatePolicy(Aggregation(refuse_multiple=1e9), history=NormHistory((1.0,))))
    assert treated.history == NormHistory()
    if engine == "eager":
        assert torch.equal(checked.flat, treated.flat)  # checks look, and change nothing
    assert not torch.equal(treated.flat, flat)
    assert built.update_policy().is_plain


@pytest.mark.parametrize("engine", ["eager", "graphs"])
def test_what_no_client_activated_keeps_its_bits(engine: str) -> None:
    case = "feast, smallest alone"
    built, (by_share, flat) = federation(case), run(engine, case, POLICIES["activated"])
    fully, _ = run(engine, case, UpdatePolicy())
    cohort = [built.clients[index] for index in built.participants[:COHORT]]
    routed = torch.zeros(flat.numel(), dtype=torch.bool)
    for assignment in built.method.plan_round({}, flat, cohort, 0, named_generator(0))[0]:
        routed[assignment.slice_map.index().long()] = True
    kept = (by_share.flat == flat) & routed
    assert kept.any()
    decayed = kept & (flat != 0)
    assert decayed.any()
    assert (fully.flat != flat)[decayed].all()
    assert not torch.equal(by_share.flat, fully.flat)


def test_one_liar_cannot_steer_a_median_as_it_steers_the_mean() -> None:
    liar = Adversary(frozenset({1}), 1e3)
    clean, _ = run("eager", "feast", UpdatePolicy())
    distances = {
        rule: float(
            (run("eager", "feast", UpdatePolicy(Aggregation(rule), adversary=liar))[0].flat - clean.flat).norm()
        )
        for rule in ("mean", "clipped-mean", "trimmed-mean", "median")
    }
    assert all(distances[rule] < distances["mean"] / 10 for rule in distances if rule != "mean")


def test_shares_of_a_cohort_make_the_median_of_the_whole() -> None:
    built = federation("feast")
    flat, policy = built.initial_weights(), UpdatePolicy(Aggregation("median"), cohort_size=COHORT)
    cohort = [built.clients[index] for index in built.participants[:COHORT]]
    planned, _ = built.method.plan_round({}, flat, cohort, 0, named_generator(0))
    engine = built.engine()
    whole = engine.run_round(RoundOrder(flat, planned, 0, RATE, policy)).flat
    shares = [engine.collect(RoundOrder(flat, part, 0, RATE, policy)).answers for part in (planned[:2], planned[2:])]
    assert not any(isinstance(share, Accumulator) for share in shares)
    # What the processes say to each other, with both of them in this one.
    first, second = shares
    spoken: list[Any] = []
    second.shared(lambda value: [spoken.append(value) or value]).merged_with(flat)  # type: ignore[attr-defined, func-returns-value]
    merged = first.shared(lambda value: [value, spoken.pop(0)])  # type: ignore[attr-defined]
    assert torch.equal(merged.merged_with(flat), whole)
