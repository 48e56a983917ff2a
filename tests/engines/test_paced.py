"""Buffered merges against a slow version by hand, and synchronous rounds with a clock against those without."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import TINY, as_settings

from fedfeast.engines.paced import PacedEngine
from fedfeast.federation import Engine, NormHistory, Pace, RoundOrder
from fedfeast.federation.pacing import training_macs
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import Federation, assemble

SMALL = [
    *as_settings(TINY),
    *("population.num_clients=6", "data.validation_examples=900", "training.batch_size=64", "engine.precision=float64"),
]
METHODS = {
    **{name: [f"method.name={name}"] for name in ("feast", "heterofl", "scalefl", "fedrolex", "fjord", "fedavg")},
    "fiarse": ["method.name=fiarse", "method.num_points=3"],
}


def order_of(federation: Federation, flat: torch.Tensor, clients: list[int], index: int) -> RoundOrder:
    cohort = [federation.clients[client] for client in clients]
    assignments, _ = federation.method.plan_round({}, flat, cohort, index, named_generator(0, "plan", index))
    return RoundOrder(flat, assignments, index, 0.05, federation.update_policy())


def answer(engine: Engine, federation: Federation, flat: torch.Tensor, client: int, index: int) -> torch.Tensor:
    """Return the whole vector with what one client alone makes of its slice, NaN elsewhere."""
    order = order_of(federation, flat, [client], index)
    result = engine.run_round(order)
    return torch.where(result.answered, result.flat, torch.nan)


def paced(federation: Federation, seconds: list[float], pace: Pace) -> PacedEngine:
    """Return an engine whose clients take so many seconds, whatever they are sent."""
    order = order_of(federation, federation.initial_weights(), list(range(6)), 0)
    macs = [training_macs(federation.method, one, federation.preparation) for one in order.assignments]
    return PacedEngine(federation.engine(), pace, np.array(macs) / np.array(seconds), federation.preparation)


@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS)
def test_slices_of_several_ages_are_merged_by_position_against_what_each_left_from(settings: list[str]) -> None:
    federation = assemble(load_recipe("digits", [*SMALL, *settings]))
    plain, first = federation.engine(), federation.initial_weights()
    engine = paced(federation, [1, 1, 5, 1, 9, 1], Pace(4, 2))
    one = engine.run_round(order_of(federation, first, [0, 1, 2, 4], 0))
    assert one.notes["ages"] == [0, 0]
    assert torch.equal(one.flat, plain.run_round(order_of(federation, first, [0, 1], 0)).flat)
    # The slow ones of the first version come with a fast one of the second.
    second = one.flat
    engine._tasks = [replace(task, ends_at=1.5 if task.client == 2 else 9.0) for task in engine._tasks]
    two = engine.run_round(order_of(federation, second, [3, 5], 1))
    assert (two.notes["answered"], two.notes["ages"]) == ([2, 3], [1, 0])
    alone = [(2, first, 0, 2**-0.5), (3, second, 1, 1.0)]
    sums, weights = torch.zeros_like(first), torch.zeros_like(first)
    for client, left_from, index, factor in alone:
        values = answer(plain, federation, left_from, client, index)
        says, examples = ~values.isnan(), federation.clients[client].num_examples
        sums += torch.where(says, factor * examples * (values - left_from), 0.0)
        weights += examples * says
    expected = torch.where(weights > 0, second + sums / weights, second)
    torch.testing.assert_close(two.flat, expected, rtol=0, atol=1e-12)
    assert torch.equal(two.answered, weights > 0)
    assert torch.equal(two.flat[weights == 0], second[weights == 0])
    assert [one.client.index for one in engine.at_work()] == [5, 4]


@pytest.mark.parametrize("rule", ["mean", "clipped-mean"])
def test_synchronous_rounds_with_a_clock_have_the_bits_of_those_without(rule: str) -> None:
    federation = assemble(load_recipe("digits", [*SMALL, f"aggregation.rule={rule}"]))
    flat = federation.initial_weights()
    order = order_of(federation, flat, [0, 2, 3], 0)
    engine = paced(federation, [3, 1, 2, 4, 1, 1], Pace(3))
    result = engine.run_round(order)
    assert torch.equal(result.flat, federation.engine().run_round(order).flat)
    assert result.notes["clock_seconds"] == pytest.approx(4.0)
    assert result.notes["answered"] == [2, 0, 3]


def test_a_clipped_mean_without_a_bound_yet_merges_what_waited_on_disk() -> None:
    federation = assemble(load_recipe("digits", [*SMALL, "aggregation.rule=clipped-mean"]))
    engine, flat = paced(federation, [1, 1, 2, 1, 9, 1], Pace(3, 2)), federation.initial_weights()
    one = engine.run_round(order_of(federation, flat, [0, 1, 2], 0))
    two = engine.run_round(order_of(federation, one.flat, [3, 4], 1))  # its order has no history
    assert two.notes["ages"] == [1, 0]
    assert bool(torch.isfinite(two.flat).all())
    assert not torch.equal(two.flat, one.flat)
    assert one.history.medians


def test_who_misses_its_deadline_is_left_out_and_named() -> None:
    federation = assemble(load_recipe("digits", SMALL))
    flat = federation.initial_weights()
    engine = paced(federation, [1, 60, 1, 1, 1, 1], Pace(3, None, deadline_seconds=10.0))
    result = engine.run_round(order_of(federation, flat, [0, 1, 2], 0))
    assert result.notes["failed"] == {"client-001": "no answer within 10 s"}
    assert result.notes["clock_seconds"] == pytest.approx(10.0)
    assert torch.equal(result.flat, federation.engine().run_round(order_of(federation, flat, [0, 2], 0)).flat)
    nobody = paced(federation, [60] * 6, Pace(3, 2, deadline_seconds=10.0))
    assert torch.equal(nobody.run_round(order_of(federation, flat, [0, 1, 2], 0)).flat, flat)


def test_a_lying_late_answer_is_refused_by_the_norms_of_earlier_merges() -> None:
    settings = ["adversary.share=0.2", "adversary.enlargement=100.0", "aggregation.refuse_multiple=5.0"]
    federation = assemble(load_recipe("digits", [*SMALL, *settings]))
    policy = federation.update_policy()
    assert policy.adversary is not None
    (liar, *_) = policy.adversary.clients
    honest = [client for client in range(6) if client != liar][:3]
    seconds, flat = [1.0 + 5 * (client == liar) for client in range(6)], federation.initial_weights()
    engine = paced(federation, seconds, Pace(4, 3))
    one = engine.run_round(order_of(federation, flat, sorted([*honest, liar]), 0))
    engine._tasks = [replace(task, ends_at=0.0) for task in engine._tasks]
    known = replace(policy, history=NormHistory(one.history.medians))
    two = engine.run_round(replace(order_of(federation, one.flat, honest, 1), policy=known))
    assert [refusal.client for refusal in two.refusals] == [federation.clients[liar].name]
    assert "above the bound" in two.refusals[0].reason
