"""Clients that are the data's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfeast.errors import InvalidInput
from fedfeast.population.natural import (
    ClientRules,
    assign_budgets,
    divide_clients,
    keep_some,
    measure_correlation,
    natural_partition,
)
from fedfeast.randomness import named_generator

NAMES = tuple(f"speaker-{number}" for number in range(10))
SIZES = np.array([50, 3, 40, 2, 60, 70, 4, 80, 90, 10])


def divide(**rules: object) -> object:
    return divide_clients(NAMES, SIZES, ClientRules(**rules), named_generator(0))  # type: ignore[arg-type]


@given(
    held_out=st.floats(0, 0.4),
    server=st.floats(0, 0.4),
    least=st.integers(1, 30),
    small=st.sampled_from(["exclude", "pool"]),
)
def test_every_client_has_one_part(held_out: float, server: float, least: int, small: str) -> None:
    rules = ClientRules(held_out, server, least, small)  # type: ignore[arg-type]
    division = divide_clients(NAMES, SIZES, rules, named_generator(1))
    trains = np.flatnonzero(division.of_client >= 0)
    everybody = np.concatenate([trains, division.held_out, division.server, division.excluded])
    assert sorted(everybody.tolist()) == list(range(10))
    assert len(division.held_out) == (max(round(10 * held_out), 1) if held_out else 0)
    sizes = np.bincount(division.of_client[trains], SIZES[trains])
    assert len(sizes) == len(division.names)
    assert sizes.min() >= least
    assert sum(division.report().values()) - division.report()["training"] <= 10


def test_a_share_that_is_asked_for_is_somebody() -> None:
    division = divide_clients(NAMES[:4], SIZES[:4], ClientRules(0.1, 0.1), named_generator(0))
    assert (len(division.held_out), len(division.server), len(division.names)) == (1, 1, 2)


def test_a_name_counts_once() -> None:
    division = divide_clients(NAMES, SIZES, ClientRules(("speaker-2", "speaker-2")), named_generator(0))
    assert division.report()["held_out"] == 1


def test_clients_are_held_out_by_name() -> None:
    division = divide_clients(NAMES, SIZES, ClientRules(("speaker-2", "speaker-7"), ("speaker-9",)), named_generator(0))
    assert division.held_out.tolist() == [2, 7]
    assert division.server.tolist() == [9]
    assert "speaker-2" not in division.names


def test_small_clients_are_pooled_with_their_neighbours() -> None:
    division = divide_clients(NAMES, SIZES, ClientRules(least_examples=5, small_clients="pool"), named_generator(0))
    assert division.names[-1] == "pool-1"
    assert division.of_client[[1, 3, 6]].tolist() == [7, 7, 7]
    assert (division.pooled, len(division.excluded)) == (3, 0)


def test_everyone_who_trains_as_one() -> None:
    names = (*NAMES[:9], "everyone")
    rules = ClientRules(("speaker-2",), ("speaker-4",), least_examples=3, small_clients="exclude")
    apart = divide_clients(names, SIZES, rules, named_generator(0))
    division = apart.as_one()
    assert division.names == ("everyone-",), "a client of the data has the name already"
    assert division.of_client.tolist() == [0, 0, -1, -1, -1, 0, 0, 0, 0, 0]
    assert division.report() == {"training": 1, "held_out": 1, "server": 1, "excluded": 1, "pooled": 7}


def test_small_clients_are_excluded() -> None:
    division = divide_clients(NAMES, SIZES, ClientRules(least_examples=5), named_generator(0))
    assert division.excluded.tolist() == [1, 3, 6]
    assert len(division.names) == 7


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (
            {"held_out": ("speaker-22",)},
            "names 'speaker-22', and the data have no such client (did you mean 'speaker-2'?)",
        ),
        ({"held_out": ("speaker-2",), "server": ("speaker-2",)}, "is in data.held_out_clients and in"),
        ({"least_examples": 100}, "no client is left to train"),
    ],
)
def test_impossible_rules_are_refused(rules: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        divide(**rules)
    assert words in str(refusal.value)


def test_a_natural_partition_keeps_every_example_with_its_owner() -> None:
    owners = np.array([2, 0, 0, 1, 2, 2])
    partition = natural_partition(owners, 3)
    assert [shard.tolist() for shard in partition.shards] == [[1, 2], [3], [0, 4, 5]]
    assert partition.realized_shares.tolist() == pytest.approx([1 / 3, 1 / 6, 1 / 2])
    assert partition.report()["moved_examples"] == 0


def test_some_examples_are_kept_evenly_over_the_classes() -> None:
    owners, labels = np.repeat([0, 1], 30), np.tile(np.arange(3), 20)
    kept = keep_some(owners, labels, 6, named_generator(0))
    assert np.bincount(owners[kept]).tolist() == [6, 6]
    for owner in range(2):
        assert np.bincount(labels[kept[owners[kept] == owner]]).tolist() == [2, 2, 2]
    assert len(keep_some(owners, labels, 1000, named_generator(0))) == 60


@pytest.mark.parametrize("wished", [-0.9, -0.3, 0.0, 0.5, 0.95])
def test_budgets_are_dealt_out_to_a_wished_correlation(wished: float) -> None:
    generator = named_generator(0, "sizes")
    sizes, budgets = generator.integers(200, 60_000, 900), generator.pareto(1.2, 900) + 1
    dealt = assign_budgets(budgets, sizes, wished, named_generator(0, "dealt"))
    assert np.array_equal(np.sort(dealt), np.sort(budgets))
    assert measure_correlation(dealt, sizes)["rank_correlation"] == pytest.approx(wished, abs=0.04)


def test_a_correlation_is_reached_although_many_hold_equally_much() -> None:
    generator = named_generator(3)
    sizes, budgets = np.minimum(generator.integers(20, 200, 300), 64), generator.uniform(1e6, 9e6, 300)
    dealt = assign_budgets(budgets, sizes, -0.5, named_generator(0))
    assert measure_correlation(dealt, sizes)["rank_correlation"] == pytest.approx(-0.5, abs=0.01)
    alike = np.full(300, 5e6)
    assert np.array_equal(assign_budgets(alike, sizes, 0.5, named_generator(0)), alike)


def test_a_perfect_correlation_orders_budgets_by_data() -> None:
    sizes = np.array([5, 9, 1, 7])
    dealt = assign_budgets(np.array([4.0, 3.0, 2.0, 1.0]), sizes, 1.0, named_generator(0))
    assert dealt.tolist() == [2.0, 4.0, 1.0, 3.0]


def test_gamma_is_the_exponent_that_ties_data_to_budgets() -> None:
    budgets = np.array([1e6, 2e6, 4e6, 8e6])
    measured = measure_correlation(budgets, np.array([100, 200, 400, 800]))
    assert measured == {"rank_correlation": pytest.approx(1.0), "gamma": pytest.approx(1.0)}
    assert measure_correlation(budgets, np.array([7, 7, 7, 7])) == {"rank_correlation": None, "gamma": None}
