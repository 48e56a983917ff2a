import time
from pathlib import Path

import numpy as np
import pytest

from fedfeast.errors import InvalidInput
from fedfeast.population import (
    Population,
    paper_population,
    ranks_to_budgets,
    read_population,
    zipf_population,
    zipf_ranks,
)
from fedfeast.randomness import named_generator

THREE_CLIENTS = Population(np.array([100e6, 300e6, 1200e6]))


def write_csv(folder: Path, text: str) -> Path:
    path = folder / "fleet.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_paper_population_is_the_draw_of_seed_460() -> None:
    ranks = np.arange(1, 101)
    weights = ranks**-1.2
    drawn = np.random.RandomState(460).choice(ranks, 100, p=weights / weights.sum())
    population = paper_population()
    assert population.num_clients == 100
    np.testing.assert_allclose(population.budgets_macs, 25e6 + (drawn - 1) / 99 * 1475e6, rtol=1e-12)
    assert np.median(population.budgets_macs) == pytest.approx(25e6 + 3 / 99 * 1475e6)  # rank 4
    assert (population.budgets_macs[drawn == 1] == 25e6).all()


def test_ranks_map_linearly_with_exact_ends() -> None:
    budgets_macs = ranks_to_budgets(np.array([1, 50, 100]), 100, 25e6, 1500e6)
    assert budgets_macs[0] == 25e6
    assert budgets_macs[1] == pytest.approx(25e6 + 49 / 99 * 1475e6)
    assert budgets_macs[2] == 1500e6


def test_a_single_rank_maps_to_the_least_budget() -> None:
    assert ranks_to_budgets(np.array([1, 1]), 1, 25e6, 1500e6).tolist() == [25e6, 25e6]


def test_zipf_ranks_follow_their_probabilities() -> None:
    ranks = zipf_ranks(200_000, 1.0, 3, named_generator(0, "ranks"))
    # p is proportional to 1, 1/2, 1/3; the standard error is below 0.0012
    np.testing.assert_allclose(np.bincount(ranks)[1:] / 200_000, np.array([6, 3, 2]) / 11, atol=0.005)
    assert ranks.dtype == np.int64


def test_zipf_ranks_without_skew_are_uniform_and_with_extreme_skew_all_first() -> None:
    uniform = zipf_ranks(100_000, 0.0, 4, named_generator(0, "ranks"))
    np.testing.assert_allclose(np.bincount(uniform)[1:] / 100_000, 0.25, atol=0.007)
    assert set(zipf_ranks(1000, 1e4, 50, named_generator(0, "ranks"))) == {1}


def test_a_million_clients_are_drawn_in_seconds() -> None:
    start = time.perf_counter()
    ranks = zipf_ranks(1_000_000, 1.2, 1_000_000, named_generator(0, "ranks"))
    assert time.perf_counter() - start < 5
    assert ranks.min() == 1
    assert ranks.max() <= 1_000_000


def test_zipf_population_uses_as_many_ranks_as_clients_by_default() -> None:
    drawn = zipf_population(30, named_generator(1, "population"))
    ranks = zipf_ranks(30, 1.2, 30, named_generator(1, "population"))
    np.testing.assert_array_equal(drawn.budgets_macs, ranks_to_budgets(ranks, 30, 25e6, 1500e6))
    narrow = zipf_population(30, named_generator(1, "population"), num_ranks=2, least_macs=1e6, greatest_macs=2e6)
    assert set(narrow.budgets_macs) == {1e6, 2e6}


def test_the_same_generator_gives_the_same_population() -> None:
    first, again = (zipf_population(50, named_generator(3, "population")) for _ in range(2))
    other = zipf_population(50, named_generator(4, "population"))
    np.testing.assert_array_equal(first.budgets_macs, again.budgets_macs)
    assert not np.array_equal(first.budgets_macs, other.budgets_macs)


@pytest.mark.parametrize(("num_clients", "last"), [(1, "client-000"), (1000, "client-999"), (1001, "client-1000")])
def test_default_names_have_enough_digits(num_clients: int, last: str) -> None:
    names = Population(np.full(num_clients, 1e6)).names
    assert names[-1] == last
    assert len({len(name) for name in names}) == 1


def test_data_shares_by_hand() -> None:
    # capped at 600M: 1 : 3 : 6
    np.testing.assert_allclose(THREE_CLIENTS.data_shares(1.0, 600e6), [0.1, 0.3, 0.6], rtol=1e-12)
    np.testing.assert_allclose(THREE_CLIENTS.data_shares(2.0, 600e6), np.array([1, 9, 36]) / 46, rtol=1e-12)
    np.testing.assert_array_equal(THREE_CLIENTS.data_shares(0.0, 600e6), np.full(3, 1 / 3))
    np.testing.assert_allclose(THREE_CLIENTS.data_shares(1.0, np.inf), np.array([1, 3, 12]) / 16, rtol=1e-12)


def test_data_shares_survive_an_extreme_gamma_far_below_the_cap() -> None:
    shares = Population(np.array([1.0, 2.0, 2.0])).data_shares(2000.0, 600e6)
    np.testing.assert_array_equal(shares, [0.0, 0.5, 0.5])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 1.5, 3.0])
def test_paper_data_shares_sum_to_one_and_grow_with_the_budget(gamma: float) -> None:
    population = paper_population()
    shares = population.data_shares(gamma, 600e6)
    assert shares.sum() == pytest.approx(1.0, abs=1e-12)
    assert (np.diff(shares[np.argsort(population.budgets_macs)]) >= 0).all()


@pytest.mark.parametrize("gamma", [-0.1, np.nan, np.inf])
def test_a_wrong_gamma_is_refused(gamma: float) -> None:
    with pytest.raises(InvalidInput, match=f"gamma is {gamma}"):
        THREE_CLIENTS.data_shares(gamma, 600e6)


@pytest.mark.parametrize("cap_macs", [0.0, -1.0, np.nan])
def test_a_wrong_cap_is_refused(cap_macs: float) -> None:
    with pytest.raises(InvalidInput, match=f"cap is {cap_macs} MACs"):
        THREE_CLIENTS.data_shares(1.0, cap_macs)


@pytest.mark.parametrize(
    ("num_clients", "exponent", "num_ranks", "message"),
    [
        (0, 1.2, 5, "number of clients is 0"),
        (5, -0.5, 5, "exponent is -0.5"),
        (5, np.nan, 5, "exponent is nan"),
        (5, 1.2, 0, "number of ranks is 0"),
    ],
)
def test_wrong_zipf_arguments_are_refused(num_clients: int, exponent: float, num_ranks: int, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        zipf_population(num_clients, named_generator(0), exponent=exponent, num_ranks=num_ranks)


@pytest.mark.parametrize(("least", "greatest"), [(2e6, 1e6), (0.0, 1e6), (-1.0, 1e6), (1e6, np.inf)])
def test_a_wrong_budget_range_is_refused(least: float, greatest: float) -> None:
    with pytest.raises(InvalidInput, match=f"from {least:.1f} to"):
        zipf_population(5, named_generator(0), least_macs=least, greatest_macs=greatest)


@pytest.mark.parametrize("rank", [0, 11])
def test_a_rank_out_of_range_is_refused(rank: int) -> None:
    with pytest.raises(InvalidInput, match=f"Rank {rank} is outside 1..10"):
        ranks_to_budgets(np.array([1, rank]), 10, 1e6, 2e6)


def test_a_population_checks_its_fields() -> None:
    with pytest.raises(InvalidInput, match="shape \\(0,\\)"):
        Population(np.array([]))
    with pytest.raises(InvalidInput, match="Client 1 has the budget nan"):
        Population(np.array([1e6, np.nan]))
    with pytest.raises(InvalidInput, match="1 distinct names for 2 clients"):
        Population(np.array([1e6, 2e6]), ("a", "a"))
    with pytest.raises(InvalidInput, match="3 distinct names for 2 clients"):
        Population(np.array([1e6, 2e6]), ("a", "b", "c"))


def test_a_fleet_is_read_with_names_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = write_csv(tmp_path, "\ufeffname, budget_macs ,room\nlobby, 2.5e7,1\ngate,600000000,2\n")
    population = read_population(path)
    assert population.names == ("lobby", "gate")
    assert population.budgets_macs.tolist() == [25e6, 600e6]
    assert population.budgets_macs.dtype == np.float64


def test_a_fleet_without_names_receives_default_names(tmp_path: Path) -> None:
    population = read_population(write_csv(tmp_path, "budget_macs\n1e6\n\n2e6\n"))
    assert population.names == ("client-000", "client-001")


@pytest.mark.parametrize("value", ["", "many", "nan", "inf", "-5", "0", "1e400"])
def test_a_wrong_budget_is_refused_with_its_line(tmp_path: Path, value: str) -> None:
    path = write_csv(tmp_path, f"name,budget_macs\na,1e6\nb,{value}\n")
    with pytest.raises(InvalidInput, match=f"line 3 has the budget_macs '{value}'"):
        read_population(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"no column budget_macs, only \[\]"),
        ("name,macs\na,1e6\n", r"no column budget_macs, only \['name', 'macs'\]"),
        ("budget_macs\n", "no rows"),
        ("name,budget_macs\na\n", "line 2 has the budget_macs None"),
        ("budget_macs,name\n1e6,a\n2e6,a\n", "line 3 has the name 'a'"),
        ("budget_macs,name\n1e6, \n", "line 2 has the name ''"),
        ("budget_macs\n25,000,000\n", "line 2 has more values than the header"),
    ],
)
def test_a_wrong_fleet_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_population(write_csv(tmp_path, text))


def test_names_that_are_needed_are_not_made_up(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"has no column name, only \['client', 'budget_macs'\]"):
        read_population(write_csv(tmp_path, "client,budget_macs\na,1e6\n"), named=True)


def test_a_fleet_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"missing\.csv"):
        read_population(tmp_path / "missing.csv")
    with pytest.raises(InvalidInput, match="Cannot read"):
        read_population(tmp_path)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"budget_macs\n\xff\xfe\n")
    with pytest.raises(InvalidInput, match="no CSV text"):
        read_population(binary)
