import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfeast.population import Population, partition_by_budget, ranks_to_budgets, zipf_ranks
from fedfeast.population.authors import authors_shares, partition_as_authors
from fedfeast.population.partition import cut_counts, draw_proportions, repair_moves
from fedfeast.randomness import legacy_stream, named_generator

budgets = st.lists(st.floats(1.0, 1e15), min_size=1, max_size=30).map(np.array)
gammas = st.floats(0.0, 50.0)
caps = st.floats(1.0, 1e15)
seeds = st.integers(0, 2**32)
alphas = st.floats(-300.0, 6.0).map(lambda power: 10.0**power)

modest = settings(derandomize=True, deadline=None, max_examples=60)


@modest
@given(budgets, gammas, caps)
def test_shares_sum_to_one_and_never_fall_with_the_budget(
    budgets_macs: np.ndarray, gamma: float, cap_macs: float
) -> None:
    shares = Population(budgets_macs).data_shares(gamma, cap_macs)
    assert abs(shares.sum() - 1) < 1e-9
    assert (shares >= 0).all()
    assert (np.diff(shares[np.argsort(budgets_macs)]) >= 0).all()
    above = shares[budgets_macs >= cap_macs]
    assert (above == above[:1]).all()


@modest
@given(st.integers(1, 200), st.floats(0.0, 50.0), st.integers(1, 300), seeds)
def test_ranks_and_budgets_stay_in_their_ranges(num_clients: int, exponent: float, num_ranks: int, seed: int) -> None:
    ranks = zipf_ranks(num_clients, exponent, num_ranks, named_generator(seed))
    assert ranks.shape == (num_clients,)
    assert ranks.min() >= 1
    assert ranks.max() <= num_ranks
    budgets_macs = ranks_to_budgets(ranks, num_ranks, 25e6, 1500e6)
    assert budgets_macs.min() >= 25e6
    assert budgets_macs.max() <= 1500e6
    assert (np.diff(budgets_macs[np.argsort(ranks)]) >= 0).all()


@modest
@given(budgets, gammas, alphas, seeds)
def test_a_draw_is_a_distribution_that_is_zero_where_the_share_is(
    budgets_macs: np.ndarray, gamma: float, alpha: float, seed: int
) -> None:
    shares = Population(budgets_macs).data_shares(gamma, 600e6)
    proportions = draw_proportions(shares, alpha, named_generator(seed))
    assert abs(proportions.sum() - 1) < 1e-9
    assert (proportions >= 0).all()
    assert (proportions[shares == 0] == 0).all()


@modest
@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40).filter(lambda values: sum(values) > 1e-6),
    st.integers(1, 10_000),
)
def test_cuts_assign_every_example_and_stay_within_one_of_the_proportion(
    weights: list[float], num_examples: int
) -> None:
    proportions = np.array(weights) / sum(weights)
    counts = cut_counts(proportions, num_examples)
    assert counts.sum() == num_examples
    assert (counts >= 0).all()
    assert (counts[proportions == 0] == 0).all()
    assert (np.abs(counts - proportions * num_examples) < 1 + 1e-6).all()


@modest
@given(st.lists(st.integers(0, 20), min_size=1, max_size=30).map(np.array), st.integers(0, 5))
def test_repair_reaches_the_minimum_with_the_fewest_moves(sizes: np.ndarray, min_shard: int) -> None:
    min_shard = min(min_shard, int(sizes.sum()) // len(sizes))
    moves = repair_moves(sizes, np.full(len(sizes), sizes.mean()), min_shard)
    given_away, received = (np.bincount(moves[:, side], minlength=len(sizes)) for side in (0, 1))
    repaired = sizes - given_away + received
    assert repaired.min() >= min_shard
    assert len(moves) == np.maximum(min_shard - sizes, 0).sum()
    assert not ((given_away > 0) & (received > 0)).any()


@modest
@given(
    st.lists(st.integers(-3, 12), min_size=30, max_size=300).map(np.array),
    budgets,
    st.floats(0.0, 3.0),
    alphas,
    st.integers(0, 1),
    seeds,
)
def test_shards_are_disjoint_complete_and_large_enough(
    labels: np.ndarray, budgets_macs: np.ndarray, gamma: float, alpha_data: float, min_shard: int, seed: int
) -> None:
    shares = Population(budgets_macs).data_shares(gamma, 600e6)
    partition = partition_by_budget(labels, shares, alpha_data, named_generator(seed), min_shard=min_shard)
    np.testing.assert_array_equal(np.sort(np.concatenate(list(partition.shards))), np.arange(len(labels)))
    assert len(partition.shards) == len(shares)
    assert partition.shards.sizes.min() >= min_shard
    assert partition.report()["examples"] == len(labels)


@modest
@given(
    st.lists(st.integers(0, 9), min_size=30, max_size=200).map(np.array),
    budgets,
    st.floats(0.0, 1.5),
    st.floats(0.1, 10),
)
def test_the_authors_shards_are_disjoint_and_complete(
    labels: np.ndarray, budgets_macs: np.ndarray, gamma: float, alpha_data: float
) -> None:
    shares = authors_shares(Population(budgets_macs), gamma, 600e6)
    partition = partition_as_authors(labels, shares, alpha_data, legacy_stream(42), min_shard=0)
    np.testing.assert_array_equal(np.sort(np.concatenate(list(partition.shards))), np.arange(len(labels)))
    assert len(partition.shards) == len(shares)
    np.testing.assert_allclose(partition.realized_shares.sum(), 1.0)
