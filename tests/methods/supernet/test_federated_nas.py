from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import cos, pi
from typing import Any

import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.federation import Accumulator, Assignment, Client, Pass, State
from fedfeast.methods import DeepFedNas, SuperFedNas
from fedfeast.methods.supernet.federated_nas import FederatedNas
from fedfeast.networks import Architecture
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.variants import VariantCache

RICH, POOR = 1500e6, 25e6
UNCONSTRAINED = {"method.constrained": False, "method.weighting": "count"}


@cache
def paper(name: str, constrained: bool = True) -> FederatedNas:
    settings = {"method.name": name, "method.constrained": constrained, "method.weighting": "count"}
    method = outline(load_recipe("cifar100-paper", settings)).method
    assert isinstance(method, FederatedNas)
    return method


def clients(*budgets: float, first: int = 0) -> list[Client]:
    return [Client(first + index, f"client {index}", budget, 10 + index) for index, budget in enumerate(budgets)]


def plan(
    method: FederatedNas, cohort: Sequence[Client], round_index: int = 0, state: State | None = None
) -> tuple[list[Assignment], State]:
    state = method.initial_state() if state is None else state
    generator = named_generator(0, "plan", round_index)
    return method.plan_round(state, torch.zeros(1), cohort, round_index, generator)


def network_of(assignment: Assignment) -> Architecture:
    (architecture,) = assignment.architectures
    assert isinstance(architecture, Architecture)
    return architecture


def macs_of(method: FederatedNas, architecture: Any) -> int:
    return method.network.macs(architecture)


@pytest.mark.parametrize(
    ("round_index", "weight"), [(0, 0.9), (1600, 0.5), (3200, 0.1), (3201, 0.1), (3999, 0.1), (800, None)]
)
def test_the_largest_networks_weight_falls_down_a_cosine(round_index: int, weight: float | None) -> None:
    if weight is None:
        share = 0.1 / 0.9
        weight = 0.9 * ((1 - share) * 0.5 * (1 + cos(pi * round_index / 3200)) + share)
    for name in ("superfednas", "deepfednas"):
        assert paper(name).largest_weight(round_index, 10) == pytest.approx(weight)
        assert paper(name).largest_weight(round_index, 1) == 1.0


def test_from_nine_tenths_to_an_eighth_as_published() -> None:
    method = DeepFedNas(paper("deepfednas").network, paper("deepfednas").cache, rounds=1500)
    assert [method.largest_weight(index, 8) for index in (0, 1200, 1499)] == pytest.approx([0.9, 0.125, 0.125])


@pytest.mark.parametrize("name", ["superfednas", "deepfednas"])
def test_the_others_share_the_rest_evenly_whatever_they_hold(name: str) -> None:
    planned, _ = plan(paper(name, constrained=False), clients(*[RICH] * 10), 1600)
    weights = [assignment.weight for assignment in planned]
    assert weights == pytest.approx([0.5] + [0.5 / 9] * 9)
    assert sum(weights) == pytest.approx(1)


@pytest.mark.parametrize("name", ["superfednas", "deepfednas"])
def test_shares_are_multiplied_by_what_clients_hold_unless_asked_otherwise(name: str) -> None:
    method = replace(paper(name, constrained=False), weighting="samples")
    assert outline(load_recipe("cifar100-paper", {"method.name": name})).method.weighting == "samples"  # type: ignore[attr-defined]
    planned, _ = plan(method, clients(*[RICH] * 10), 1600)
    assert [one.weight for one in planned] == pytest.approx([0.5 * 10] + [0.5 / 9 * held for held in range(11, 20)])


@pytest.mark.parametrize(("round_index", "weight"), [(0, 0.9), (1600, 0.5125), (3200, 0.125), (3999, 0.125)])
def test_the_authors_largest_network_ends_at_an_eighth_whatever_the_cohort(round_index: int, weight: float) -> None:
    for name in ("superfednas", "deepfednas"):
        method = outline(load_recipe("cifar100-paper", {"method.name": name, "method.preset": "authors"})).method
        assert isinstance(method, FederatedNas)
        assert method.largest_weight(round_index, 10) == pytest.approx(weight)
        planned, _ = plan(method, clients(*[RICH] * 10), round_index)
        shares = [one.weight / one.client.num_examples for one in planned]
        assert shares == pytest.approx([weight] + [(1 - weight) / 9] * 9)


def test_the_authors_superfednas_falls_back_to_the_smallest_network() -> None:
    """By the fact sheet 96 % of the time at 25M, 60 % at 55M and 10 % at 100M."""
    method = outline(load_recipe("cifar100-paper", {"method.name": "superfednas", "method.preset": "authors"})).method
    assert isinstance(method, SuperFedNas)
    assert (method.largest_draws, method.tries) == (20, 50)
    generator, smallest = named_generator(0, "tries"), method.network.smallest
    for budget, least, most in ((POOR, 0.9, 1.0), (55e6, 0.45, 0.75), (100e6, 0.0, 0.25)):
        (client,) = clients(budget)
        drawn = [method.drawn(client, generator) for _ in range(60)]
        assert all(macs_of(method, one) <= budget for one in drawn)
        assert least <= drawn.count(smallest) / 60 <= most
    (client,) = clients(400e6)
    largest = [macs_of(method, method.largest(client, generator)) for _ in range(20)]
    assert 200e6 < min(largest) <= max(largest) <= 400e6
    assert method.largest(clients(3.9e6)[0], generator) == smallest


@pytest.mark.parametrize("name", ["superfednas", "deepfednas"])
def test_small_cohorts(name: str) -> None:
    method = paper(name, constrained=False)
    least, most = ends(method)
    (alone,), _ = plan(method, clients(RICH))
    assert (network_of(alone), alone.weight) == (most, 1.0)
    pair, _ = plan(method, clients(RICH, RICH))
    assert [network_of(one) for one in pair] == [most, least]
    assert [one.weight for one in pair] == pytest.approx([0.9, 0.1])


def ends(method: FederatedNas) -> tuple[Architecture, Architecture]:
    """The smallest and the largest network that a sampler knows: of the space, or of the cache."""
    if isinstance(method, SuperFedNas):
        return method.network.space.smallest, method.network.largest
    return method.cache[0].architecture, method.cache[-1].architecture


def test_the_ends_of_the_space_and_of_the_cache() -> None:
    least, most = ends(paper("superfednas", constrained=False))
    network = paper("superfednas").network
    assert [round(network.macs(one) / 1e6, 2) for one in (least, most)] == [3.80, 2677.84]
    least, most = ends(paper("deepfednas"))
    assert (network.macs(least), network.macs(most)) == (24_967_328, 595_791_168)


@pytest.mark.parametrize("name", ["superfednas", "deepfednas"])
def test_roles_go_to_those_who_had_them_least(name: str) -> None:
    method = paper(name, constrained=False)
    least, most = ends(method)
    everyone = clients(*[RICH] * 7)
    had = {"largest": [0] * 7, "smallest": [0] * 7}
    state = method.initial_state()
    for round_index in range(25):
        cohort = [everyone[index] for index in sorted({round_index % 7, (3 * round_index + 1) % 7, 5, 6, 2})]
        planned, state = plan(method, cohort, round_index, state)
        assert [assignment.client for assignment in planned] == cohort
        roles = [index for index, one in enumerate(planned) if one.weight > 0.5]
        assert len(roles) == 1, "one client has the largest network's weight"
        chosen = planned[roles[0]]
        assert network_of(chosen) == most
        assert had["largest"][chosen.client.index] == min(had["largest"][client.index] for client in cohort)
        rest = [one for one in planned if one is not chosen]
        fewest = min(had["smallest"][one.client.index] for one in rest)
        had_it_least = [one for one in rest if had["smallest"][one.client.index] == fewest]
        assert least in map(network_of, had_it_least)
        for one in planned:
            had["largest"][one.client.index] += network_of(one) == most
            had["smallest"][one.client.index] += network_of(one) == least
        counted = {role: count.tolist() + [0] * (7 - len(count)) for role, count in state.items()}
        assert counted == had
    assert max(had["largest"]) - min(had["largest"]) <= 3


def test_a_draw_that_hits_an_end_counts_as_the_role() -> None:
    full = paper("deepfednas").cache
    method = DeepFedNas(paper("deepfednas").network, VariantCache.of([full[0], full[-1]]), 4000, constrained=False)
    planned, state = plan(method, clients(*[RICH] * 8))
    smallest = [int(network_of(one) == full[0].architecture) for one in planned]
    assert 1 < sum(smallest) < 7, "draws hit both ends"
    assert state["smallest"].tolist() == smallest
    assert state["largest"].tolist() == [1 - count for count in smallest]


def test_the_role_of_the_largest_is_no_turn_as_the_smallest() -> None:
    """A client that affords the smallest network alone trains it in either role."""
    planned, state = plan(paper("deepfednas"), clients(POOR, POOR))
    assert {network_of(one) for one in planned} == {paper("deepfednas").cache[0].architecture}
    assert (state["largest"].tolist(), state["smallest"].tolist()) == ([1, 0], [0, 1])


def test_memory_is_a_value_and_grows_with_the_clients() -> None:
    method = paper("deepfednas")
    start = method.initial_state()
    _, after = plan(method, clients(RICH, RICH, first=3), 0, start)
    assert [len(count) for count in start.values()] == [0, 0]
    kept = {role: count.clone() for role, count in after.items()}
    _, later = plan(method, clients(RICH, RICH), 1, after)
    assert all(torch.equal(after[role], kept[role]) for role in after)
    assert later["largest"].tolist() == [1, 0, 0, 1, 0]
    assert later["smallest"].tolist() == [0, 1, 0, 0, 1]


@pytest.mark.parametrize("name", ["superfednas", "deepfednas"])
def test_constrained_draws_keep_the_budget(name: str) -> None:
    method = paper(name)
    assert method.keeps_budgets
    budgets = [RICH, POOR, 40e6, 70e6, 200e6, 596e6, POOR, 100e6]
    state = method.initial_state()
    for round_index in range(4):
        planned, state = plan(method, clients(*budgets), round_index, state)
        for assignment in planned:
            assert method.network.macs(network_of(assignment)) <= assignment.client.budget_macs
            assert assignment.slice_map.payload == method.network.parameters(network_of(assignment))
            assert method.passes(assignment, 0, named_generator(0)) == [Pass(network_of(assignment), "supervised")]


@pytest.mark.parametrize("name", ["superfednas", "deepfednas"])
def test_unconstrained_draws_do_not_and_say_so(name: str) -> None:
    method = paper(name, constrained=False)
    assert not method.keeps_budgets
    assert method.trains(1.0)
    assert not paper(name).trains(24_967_327)
    assert paper(name).trains(24_967_328)
    planned, _ = plan(method, clients(*[POOR] * 10))
    assert sum(method.network.macs(network_of(one)) > POOR for one in planned) >= 5


def test_a_constrained_client_of_deepfednas_has_the_cache_up_to_its_budget() -> None:
    method, generator = paper("deepfednas"), named_generator(0, "draws")
    (client,) = clients(70e6)
    affordable = [variant.architecture for variant in method.cache.affordable(70e6)]
    assert method.largest(client, generator) == affordable[-1]
    assert method.smallest() == method.cache[0].architecture
    drawn = [method.drawn(client, generator) for _ in range(500)]
    assert {drawn.count(one) > 60 for one in affordable} == {True}
    assert set(drawn) == set(affordable)


def test_a_constrained_client_of_superfednas_takes_its_largest_from_the_upper_end() -> None:
    method, generator = paper("superfednas"), named_generator(0, "draws")
    (client,) = clients(100e6)
    largest = [method.network.macs(method.largest(client, generator)) for _ in range(20)]
    drawn = [method.network.macs(method.drawn(client, generator)) for _ in range(20)]
    assert max(*largest, *drawn) <= 100e6
    assert min(largest) > 90e6 > sorted(drawn)[12]


def test_whoever_affords_the_whole_supernet_trains_it_in_the_role_of_the_largest() -> None:
    method, generator = paper("superfednas"), named_generator(0, "draws")
    whole = method.network.largest
    (can, cannot) = clients(method.network.macs(whole), method.network.macs(whole) - 1)
    assert method.largest(can, generator) == whole
    assert method.largest(cannot, generator) != whole


def test_networks_that_training_comes_back_to() -> None:
    cached = tuple(variant.architecture for variant in paper("deepfednas").cache)
    assert paper("deepfednas").trained_architectures() == cached
    network = paper("superfednas").network
    assert paper("superfednas").trained_architectures() == (network.smallest, *cached, network.largest)
    planned = [plan(paper("superfednas", constrained=False), clients(RICH, RICH), index)[0] for index in range(2)]
    assert planned[0][1].slice_map is planned[1][1].slice_map, "the smallest network's map is kept"


def test_answers_are_merged_by_these_weights_where_they_overlap() -> None:
    method = outline(load_recipe("digits", {"method.name": "deepfednas", **UNCONSTRAINED})).method
    assert isinstance(method, DeepFedNas)
    planned, _ = plan(method, clients(RICH, RICH), 0)
    size = method.network.layout.size
    answers, previous = Accumulator(size), torch.full((size,), -1.0)
    for assignment, value in zip(planned, (2.0, 12.0), strict=True):
        answers.add(assignment.slice_map, torch.full((assignment.slice_map.payload,), value), assignment.weight)
    merged = method.merge(previous, answers)
    large, small = (assignment.slice_map.index().long() for assignment in planned)
    both = large[torch.isin(large, small)]
    assert 0 < len(both) < len(large)
    torch.testing.assert_close(merged[both], torch.full_like(merged[both], 0.9 * 2 + 0.1 * 12))
    alone = large[~torch.isin(large, small)]
    assert (merged[alone] == 2.0).all(), "the only answer counts whole, whatever it weighs"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"last_weight": 0.0}, r"method.last_weight = 0.0: give a share above 0 and below 1"),
        ({"last_weight": float("nan")}, r"method.last_weight = nan"),
        ({"largest_draws": 0}, r"method.largest_draws = 0: give at least 1"),
        ({"tries": 0}, r"method.tries = 0: give at least 1"),
    ],
)
def test_last_weight_draws_and_tries_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(paper("superfednas"), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"first_weight": 0.0},
        {"first_weight": 1.0},
        {"first_weight": float("nan")},
        {"annealed_share": 0.0},
        {"annealed_share": 1.1},
        {"annealed_share": float("nan")},
    ],
)
def test_shares_out_of_range_are_refused(options: dict[str, Any]) -> None:
    for name in ("superfednas", "deepfednas"):
        with pytest.raises(InvalidInput, match=r"method.first_weight = .* and method.annealed_share = .*: give shares"):
            replace(paper(name), **options)


def test_deepfednas_can_draw_the_cheap_more_often() -> None:
    uniform = paper("deepfednas")
    assert isinstance(uniform, DeepFedNas)
    cheap, generator = replace(uniform, sampling="inverse-macs"), named_generator(0, "draws")
    (client,) = clients(RICH)
    drawn = [macs_of(cheap, cheap.drawn(client, generator)) for _ in range(2000)]
    costs = [variant.macs for variant in cheap.cache]
    expected = len(costs) / sum(1 / macs for macs in costs)  # the harmonic mean
    assert sum(drawn) / len(drawn) == pytest.approx(expected, rel=0.05)
    assert expected < 0.7 * sum(costs) / len(costs)
