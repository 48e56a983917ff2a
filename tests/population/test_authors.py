"""The authors' draws, to the last digit of what they ran: authors_seed0.csv has their budgets and shard sizes."""

import csv
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput
from fedfeast.population import Population, authors_population, partition_as_authors, partition_stream
from fedfeast.population.authors import authors_shares, permute_training
from fedfeast.randomness import legacy_stream

with Path(__file__).with_name("authors_seed0.csv").open() as file:
    ROWS = list(csv.DictReader(file))
CAP_MACS = 600e6


def column(name: str) -> NDArray[np.float64]:
    return np.array([float(row[name]) for row in ROWS])


def test_the_budgets_are_the_authors_bit_for_bit() -> None:
    population = authors_population()
    np.testing.assert_array_equal(population.budgets_macs, column("budget_macs"))
    np.testing.assert_array_equal(authors_population(least_macs=25e6).budgets_macs, column("baseline_macs"))
    assert (population.budgets_macs.max() / 1e6).round(1) == 1360.9
    assert np.median(population.budgets_macs) / 1e6 == pytest.approx(60.9, abs=0.05)


def test_lifted_budgets_afford_the_smallest_network_and_leave_the_data_alone() -> None:
    population = authors_population()
    lifted = population.lifted(24_967_328)
    np.testing.assert_array_equal(lifted.budgets_macs, column("lifted_macs"))
    assert (population.num_lifted, lifted.num_lifted) == (0, 15)
    np.testing.assert_array_equal(lifted.data_shares(1.0, CAP_MACS), population.data_shares(1.0, CAP_MACS))
    assert lifted.names == population.names
    higher = lifted.lifted(40e6)
    assert higher.budgets_macs.min() == 40e6
    np.testing.assert_array_equal(higher.drawn_macs, population.budgets_macs)
    assert lifted.lifted(1e6) is lifted


def test_other_exponents_and_numbers_of_clients_can_be_drawn() -> None:
    flat, steep = (authors_population(exponent=exponent).budgets_macs.mean() for exponent in (0.8, 1.5))
    assert flat > steep
    few = authors_population(7, num_ranks=20, least_macs=1e5, greatest_macs=2e5).budgets_macs
    assert len(few) == 7
    assert ((few >= 1e5) & (few <= 2e5)).all()
    with pytest.raises(InvalidInput, match="There are 1 ranks"):
        authors_population(1)
    with pytest.raises(InvalidInput, match="Budgets range from"):
        authors_population(least_macs=2e9)


def test_the_shares_are_q_up_to_rounding() -> None:
    population = authors_population()
    for gamma in (0.0, 0.25, 1.0, 1.5):
        shares = authors_shares(population, gamma, CAP_MACS)
        np.testing.assert_allclose(shares, population.data_shares(gamma, CAP_MACS), rtol=1e-12)
    # Powers that overflow are left to the form that cannot.
    np.testing.assert_allclose(authors_shares(Population(np.array([1e9, 2e9])), 1e3, np.inf), [0, 1], atol=1e-200)


def test_shards_of_the_two_sets_whose_class_counts_are_known() -> None:
    permuted, stream = permute_training(100_000)
    labels = np.repeat(np.arange(200), 500)[permuted[10_000:]]  # TinyImageNet's folders are read class by class
    shares = authors_shares(authors_population(least_macs=26_968_384), 1.0, CAP_MACS)
    tiny = partition_as_authors(labels, shares, 0.1, stream)
    np.testing.assert_array_equal(tiny.shards.sizes, column("tinyimagenet_examples"))
    assert tiny.report()["redraws"] == 0

    # CINIC-10's server has examples of its own: nothing seeds the stream again after the budgets.
    shares = authors_shares(authors_population(), 1.0, CAP_MACS)
    cinic = partition_as_authors(np.repeat(np.arange(10), 9_000), shares, 0.005, partition_stream(90_000, 100, True))
    np.testing.assert_array_equal(cinic.shards.sizes, column("cinic10_examples"))
    assert cinic.report()["redraws"] == 14
    assert np.sort(cinic.shards.order).tolist() == list(range(90_000))


def test_a_draw_checked_step_by_step() -> None:
    labels, shares = np.array([1, 0, 1, 0, 0, 1, 1, 0]), np.array([0.25, 0.75])
    partition = partition_as_authors(labels, shares, 2.0, legacy_stream(3), min_shard=0)
    stream = legacy_stream(3)
    zeros, ones = np.array([1, 3, 4, 7]), np.array([0, 2, 5, 6])
    stream.shuffle(zeros)
    cut = int(stream.dirichlet([2.0, 6.0])[0] * 4)
    stream.shuffle(ones)
    second = stream.dirichlet([2.0, 6.0])
    open_shares = second * (np.array([cut, 4 - cut]) < np.array([2.0, 6.0]))
    other_cut = int(open_shares[0] / open_shares.sum() * 4)
    assert partition.shards[0].tolist() == [*zeros[:cut], *ones[:other_cut]]
    assert partition.shards[1].tolist() == [*zeros[cut:], *ones[other_cut:]]
    np.testing.assert_array_equal(partition.target_shares, shares)


def test_what_is_too_small_is_drawn_again() -> None:
    labels, shares = np.arange(400) % 4, np.full(8, 1 / 8)
    loose, tight = (partition_as_authors(labels, shares, 0.02, legacy_stream(0), min_shard=least) for least in (0, 20))
    assert loose.shards.sizes.min() < 20 <= tight.shards.sizes.min()
    assert loose.notes["redraws"] == 0 < tight.notes["redraws"]


def test_a_partition_that_never_fits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfeast.population.authors.MOST_ATTEMPTS", 5)
    labels, shares = np.zeros(100, dtype=np.int64), np.array([0.999, 0.001])
    with pytest.raises(InvalidInput, match=r"in 5 draws no partition gave every client partition.min_shard = 40"):
        partition_as_authors(labels, shares, 0.1, legacy_stream(0), min_shard=40)
    with pytest.raises(InvalidInput, match="2 clients with at least 60 examples each need 120"):
        partition_as_authors(labels, shares, 0.1, legacy_stream(0), min_shard=60)


def test_the_permutation_of_cifar100_is_theirs() -> None:
    permuted, _ = permute_training(50_000)
    assert permuted[:5].tolist() == [33553, 9427, 199, 12447, 39489]
