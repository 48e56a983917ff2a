import time

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput
from fedfeast.population import (
    Partition,
    Shards,
    alpha_data_from_effective,
    paper_population,
    partition_by_budget,
    zipf_population,
)
from fedfeast.population.partition import PerClient, apply_moves, cut_counts, draw_proportions, repair_moves
from fedfeast.randomness import named_generator

PAPER_LABELS = np.arange(45_000) % 100  # 450 examples of each of 100 classes


def paper_partition(gamma: float, *, alpha_data: float = 0.1, seed: int = 0, min_shard: int = 1) -> Partition:
    shares = paper_population().data_shares(gamma, 600e6)
    generator = named_generator(seed, "partition")
    return partition_by_budget(PAPER_LABELS, shares, alpha_data, generator, min_shard=min_shard)


def assert_complete(shards: Shards, num_examples: int) -> None:
    np.testing.assert_array_equal(np.sort(shards.order), np.arange(num_examples))
    assert shards.offsets[0] == 0
    assert shards.offsets[-1] == num_examples
    assert (np.diff(shards.offsets) >= 0).all()


def test_alpha_data_of_the_paper() -> None:
    assert alpha_data_from_effective(0.45, 45_000, 100, 100) == pytest.approx(0.1)
    assert alpha_data_from_effective(0.45, 90_000, 10, 100) == pytest.approx(0.005)


def test_shards_are_views_of_one_array() -> None:
    shards = Shards(np.array([7, 3, 5]), np.array([0, 2, 2, 3]))
    assert len(shards) == 3
    assert [shard.tolist() for shard in shards] == [[7, 3], [], [5]]
    assert shards.sizes.tolist() == [2, 0, 1]
    assert shards[0].base is shards.order
    for outside in (-1, 3):
        with pytest.raises(IndexError, match=r"outside 0\.\.2"):
            shards[outside]


def test_held_classes_are_those_of_each_clients_own_examples() -> None:
    shards = Shards(np.array([7, 3, 5, 0, 1]), np.array([0, 3, 3, 5]))
    labels = np.array([4, 4, 9, 2, 9, 0, 9, 2])
    assert shards.held_classes(labels) == [(0, 2), (), (4,)]


def test_paper_clients_hold_what_a_look_at_their_examples_shows() -> None:
    shards = paper_partition(1.0).shards
    held = shards.held_classes(PAPER_LABELS)
    assert held == [tuple(sorted(set(PAPER_LABELS[shard].tolist()))) for shard in shards]
    assert len(held) == 100


@pytest.mark.parametrize(
    ("proportions", "num_examples", "counts"),
    [
        ([0.5, 0.0, 0.5], 4, [2, 0, 2]),
        ([0.25, 0.25, 0.5], 6, [1, 2, 3]),
        ([0.0, 1.0, 0.0], 5, [0, 5, 0]),
        ([0.1] * 10, 10, [1] * 10),  # the cumulative sum reaches 0.7999999999999999
        ([1 / 3, 1 / 3, 1 / 3, 0.0], 2, [0, 1, 1, 0]),
        ([0.25, 0.25, 0.4999], 1, [0, 0, 1]),  # a sum below 1 loses no example
    ],
)
def test_cut_counts_by_hand(proportions: list[float], num_examples: int, counts: list[int]) -> None:
    assert cut_counts(np.array(proportions), num_examples).tolist() == counts


def test_repair_takes_from_the_client_most_over_its_cap() -> None:
    sizes, caps = np.array([0, 6, 5, 0, 1]), np.array([2.0, 5.0, 2.0, 1.0, 2.0])
    # excess 1 and 3: client 2 gives twice, then both exceed by 1 and the first of the two gives
    assert repair_moves(sizes, caps, 1).tolist() == [[2, 0], [2, 3]]
    assert repair_moves(sizes, caps, 2).tolist() == [[2, 0], [2, 0], [1, 3], [2, 3], [1, 4]]
    assert repair_moves(sizes, caps, 0).tolist() == []


def test_repair_never_takes_a_donor_below_the_minimum() -> None:
    # the client most over its cap is itself small
    assert repair_moves(np.array([2, 9, 0]), np.array([0.0, 9.0, 1.0]), 2).tolist() == [[1, 2], [1, 2]]


def test_moves_hand_over_a_random_example_and_nothing_else() -> None:
    shards = Shards(np.arange(8), np.array([0, 5, 5, 8]))
    given = set()
    for seed in range(60):
        moved = apply_moves(shards, np.array([[0, 1]]), named_generator(seed))
        assert_complete(moved, 8)
        assert moved.sizes.tolist() == [4, 1, 3]
        assert moved[2].tolist() == [5, 6, 7]
        given.add(int(moved[1][0]))
    assert given == {0, 1, 2, 3, 4}
    assert shards.order.tolist() == list(range(8))


def test_the_mean_of_the_dirichlet_draw_is_the_share_and_its_spread_follows_the_precision() -> None:
    shares, precision, num_draws = np.array([0.0, 0.1, 0.3, 0.6]), 0.8, 20_000
    generator = named_generator(0, "dirichlet")
    draws = np.stack([draw_proportions(shares, precision, generator) for _ in range(num_draws)])
    variance = shares * (1 - shares) / (precision + 1)
    assert (draws[:, 0] == 0).all()
    np.testing.assert_allclose(draws.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(draws.mean(axis=0), shares, atol=5 * np.sqrt(variance.max() / num_draws))
    np.testing.assert_allclose(draws.var(axis=0), variance, atol=0.005)


@pytest.mark.parametrize("precision", [1e-6, 1e-100, 1e-290])
def test_a_tiny_precision_gives_one_winner_by_its_share(precision: float) -> None:
    shares = np.array([0.2, 0.8])
    generator = named_generator(0, "dirichlet")
    draws = np.stack([draw_proportions(shares, precision, generator) for _ in range(4000)])
    assert np.mean(draws.max(axis=1) > 1 - 1e-9) > 0.999
    np.testing.assert_allclose(draws.mean(axis=0), shares, atol=0.032)  # five standard errors


def test_a_precision_beyond_logarithms_gives_the_shares() -> None:
    np.testing.assert_allclose(draw_proportions(np.array([0.0, 0.5, 0.5]), 5e-324, named_generator(0)), [0, 0.5, 0.5])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("min_shard", [1, 10])
def test_paper_shards_are_disjoint_complete_and_large_enough(gamma: float, min_shard: int) -> None:
    partition = paper_partition(gamma, min_shard=min_shard)
    assert_complete(partition.shards, 45_000)
    assert partition.shards.sizes.min() >= min_shard
    np.testing.assert_array_equal(partition.realized_shares, partition.shards.sizes / 45_000)
    np.testing.assert_allclose(partition.target_shares, paper_population().data_shares(gamma, 600e6))


def test_paper_shard_sizes_follow_the_shares() -> None:
    report = paper_partition(1.0).report()
    assert report["share_correlation"] > 0.99
    assert report["examples"] == 45_000
    assert report["greatest_overshoot"] < 2.5
    assert report["moved_examples"] == 0
    assert report["smallest_shard"] < report["median_shard"] < report["largest_shard"]


def test_paper_shards_hold_few_classes_and_fewer_with_a_smaller_alpha() -> None:
    def median_classes(alpha_data: float) -> float:
        shards = paper_partition(1.0, alpha_data=alpha_data).shards
        return float(np.median([len(np.unique(PAPER_LABELS[shard])) for shard in shards]))

    assert 25 < median_classes(0.1) < 60
    assert median_classes(0.001) < 10
    assert median_classes(100.0) > 60


@pytest.mark.parametrize("alpha_data", [1e-12, 1e-200, 5e-324, 1e6])
@pytest.mark.parametrize("gamma", [0.0, 3.0])
def test_an_extreme_alpha_works(alpha_data: float, gamma: float) -> None:
    partition = paper_partition(gamma, alpha_data=alpha_data)
    assert_complete(partition.shards, 45_000)
    assert partition.shards.sizes.min() >= 1


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_a_full_client_receives_nothing_of_later_classes(gamma: float) -> None:
    partition = paper_partition(gamma, alpha_data=0.01, min_shard=0)
    for shard, share in zip(partition.shards, partition.target_shares, strict=True):
        held = np.bincount(PAPER_LABELS[shard], minlength=100)
        last = np.flatnonzero(held)[-1] if len(shard) else 0
        assert held[:last].sum() < share * 45_000
    assert partition.report()["greatest_overshoot"] > 1


def test_which_examples_of_a_class_a_client_receives_is_drawn() -> None:
    labels, shares = np.zeros(10, dtype=np.int64), np.array([0.5, 0.5])
    firsts = [partition_by_budget(labels, shares, 1e30, named_generator(seed)).shards[0] for seed in range(40)]
    assert {len(first) for first in firsts} == {5}
    assert set(np.concatenate(firsts).tolist()) == set(range(10))


def test_a_huge_alpha_fills_every_cap_exactly() -> None:
    labels = np.repeat(np.arange(4), 10)
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    partition = partition_by_budget(labels, shares, 1e30, named_generator(0))
    assert partition.shards.sizes.tolist() == [4, 8, 12, 16]
    assert [np.bincount(labels[shard]).tolist() for shard in partition.shards] == [[n] * 4 for n in (1, 2, 3, 4)]


def test_moves_account_for_every_example_of_a_client_without_share() -> None:
    partition = partition_by_budget(np.zeros(10, dtype=np.int64), np.array([1.0, 0.0]), 1.0, named_generator(0))
    assert partition.moves.tolist() == [[0, 1]]
    assert partition.shards.sizes.tolist() == [9, 1]
    assert partition.report()["greatest_overshoot"] == pytest.approx(0.9)
    assert partition.report()["mean_absolute_share_difference"] == pytest.approx(0.1)


def test_as_many_examples_as_needed_gives_everyone_the_minimum() -> None:
    shares = np.array([0.7, 0.1, 0.1, 0.1])
    partition = partition_by_budget(np.arange(12) % 3, shares, 0.5, named_generator(0), min_shard=3)
    assert partition.shards.sizes.tolist() == [3, 3, 3, 3]


def test_one_client_holds_everything_and_has_no_correlation() -> None:
    partition = partition_by_budget(np.array([5, -2, 5]), np.array([1.0]), 1.0, named_generator(0))
    assert sorted(partition.shards[0]) == [0, 1, 2]
    assert "share_correlation" not in partition.report()


def test_uniform_shares_have_no_correlation() -> None:
    assert "share_correlation" not in paper_partition(0.0).report()


def test_the_same_generator_gives_the_same_shards() -> None:
    first, again, other = (paper_partition(3.0, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.shards.order, again.shards.order)
    np.testing.assert_array_equal(first.shards.offsets, again.shards.offsets)
    np.testing.assert_array_equal(first.moves, again.moves)
    assert not np.array_equal(first.shards.order, other.shards.order)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 3.0])
def test_ten_thousand_clients_are_served_in_seconds(gamma: float) -> None:
    shares = zipf_population(10_000, named_generator(0, "population")).data_shares(gamma, 600e6)
    start = time.perf_counter()
    partition = partition_by_budget(np.arange(60_000) % 10, shares, 0.1, named_generator(0, "partition"))
    assert time.perf_counter() - start < 5
    assert_complete(partition.shards, 60_000)
    assert partition.shards.sizes.min() >= 1
    assert len(partition.moves) > 0


@pytest.mark.parametrize(
    ("labels", "shares", "alpha_data", "min_shard", "message"),
    [
        (
            np.zeros(3, int),
            [0.5, 0.5],
            1.0,
            2,
            "2 clients with at least 2 examples each need 4, but there are 3",
        ),
        (np.zeros(3, int), [0.5, 0.5], 0.0, 1, "alpha_data is 0.0"),
        (np.zeros(3, int), [0.5, 0.5], np.nan, 1, "alpha_data is nan"),
        (np.zeros(3, int), [0.5, 0.5], np.inf, 1, "alpha_data is inf"),
        (np.zeros(3, int), [0.5, 0.5], 1.0, -1, "min_shard is -1"),
        (np.zeros(3, int), [0.5, 0.6], 1.0, 1, "add up to 1.1"),
        (np.zeros(3, int), [1.5, -0.5], 1.0, 1, "share of client 1 is -0.5"),
        (np.zeros(3, int), [np.nan, 1.0], 1.0, 1, "share of client 0 is nan"),
        (np.zeros(3, int), [], 1.0, 1, r"shape \(0,\)"),
        (np.zeros(3), [0.5, 0.5], 1.0, 1, "Labels are float64"),
        (np.zeros(0, int), [0.5, 0.5], 1.0, 0, r"of shape \(0,\)"),
    ],
)
def test_wrong_arguments_are_refused(
    labels: NDArray[np.int64], shares: list[float], alpha_data: float, min_shard: int, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        partition_by_budget(labels, np.array(shares), alpha_data, named_generator(0), min_shard=min_shard)


def test_wrong_effective_alphas_are_refused() -> None:
    with pytest.raises(InvalidInput, match="alpha_eff is 0"):
        alpha_data_from_effective(0.0, 10, 10, 10)
    with pytest.raises(InvalidInput, match="0 examples, 10 classes and 10 clients"):
        alpha_data_from_effective(0.45, 0, 10, 10)


def test_one_concentration_for_all_clients_divides_classes_alike_whatever_their_size() -> None:
    labels = np.repeat([0, 1], [100, 10_000])
    shares = np.full(4, 0.25)
    draws = [
        partition_by_budget(labels, shares, PerClient(0.5), named_generator(seed), min_shard=0) for seed in range(200)
    ]
    firsts = np.array([[(labels[shard] == 0).sum() / 100 for shard in one.shards] for one in draws])
    # A part of Dir(a, a, a, a) has the variance (1/4) (3/4) / (4a + 1); the small class is divided first.
    assert firsts.var(axis=0).mean() == pytest.approx(0.1875 / 3, rel=0.15)
    assert all(np.sort(one.shards.order).tolist() == list(range(10_100)) for one in draws[:3])
    with pytest.raises(InvalidInput, match=r"alpha_client is 0\.0"):
        partition_by_budget(labels, shares, PerClient(0.0), named_generator(0))
