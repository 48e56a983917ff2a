"""Paired differences against brute force: exact tests, bootstraps, and how often made-up truths are missed."""

import math

import numpy as np
import pytest
from scipy import stats

from fedfeast.studies.paired_test import holm, paired_difference


def test_of_one_seed_it_is_the_paired_t_test() -> None:
    differences = np.random.default_rng(0).normal(0.4, 1.0, size=30)
    found, expected = paired_difference([differences]), stats.ttest_1samp(differences, 0.0)
    assert (found.units, found.seeds) == (30, 1)
    assert found.mean == pytest.approx(differences.mean())
    assert found.p == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval(0.95)
    assert found.margin == pytest.approx((high - low) / 2)


def test_of_seeds_alone_it_is_their_t_test() -> None:
    by_seed = [np.array([value]) for value in (1.0, 1.5, 0.7)]
    found = paired_difference(by_seed)
    assert found.p == pytest.approx(stats.ttest_1samp([1.0, 1.5, 0.7], 0.0).pvalue)
    assert [one.freedom for one in found.chances] == [2]


@pytest.mark.parametrize(("one", "other"), [(3, 0), (5, 0), (6, 1), (10, 2), (20, 8), (45, 30), (60, 20)])
def test_few_examples_that_differ_are_judged_as_mcnemars_exact_test_does(one: int, other: int) -> None:
    differences = np.zeros(400)
    differences[:one], differences[one : one + other] = 1.0, -1.0
    exact = float(stats.binomtest(one, one + other).pvalue)
    found = paired_difference([differences]).p
    assert found is not None
    assert 0.8 * exact <= found <= 2 * exact + 0.01
    assert paired_difference([differences[:-1]]).p != found, "examples on which both are alike count in the mean"


def test_two_chances_add_up_as_in_a_bootstrap_of_seeds_and_examples() -> None:
    generator = np.random.default_rng(1)
    table = 0.5 + generator.normal(size=(8, 1)) + 3 * generator.normal(size=(1, 60)) + generator.normal(size=(8, 60))
    drawn = [
        table[generator.integers(8, size=8)][:, generator.integers(60, size=60)].mean() for _ in range(4000)
    ]  # resampling a few seeds misses an eighth of their variance
    found = paired_difference(list(table))
    assert found.mean == pytest.approx(table.mean())
    assert found.error == pytest.approx(np.std(drawn), rel=0.08)
    assert found.error == pytest.approx(
        math.sqrt(table.mean(axis=1).var(ddof=1) / 8 + table.mean(axis=0).var(ddof=1) / 60)
    )


@pytest.mark.parametrize(("of_seeds", "of_units"), [(0.3, 1.0), (0.05, 1.0), (1.0, 1.0)])
def test_the_margin_holds_the_truth_as_often_as_it_says(of_seeds: float, of_units: float) -> None:
    generator, trials, held, truth = np.random.default_rng(2), 1500, 0, 0.2
    for _ in range(trials):
        seeds, units = generator.normal(0, of_seeds, (3, 1)), generator.normal(0, of_units, (1, 100))
        found = paired_difference(list(truth + seeds + units + generator.normal(0, 0.5, (3, 100))))
        assert found.margin is not None
        held += abs(found.mean - truth) <= found.margin
    assert 0.945 <= held / trials <= 0.995


def test_p_and_margin_agree() -> None:
    generator = np.random.default_rng(4)
    for shift in (0.0, 0.2, 0.5, 2.0):
        table = shift + generator.normal(0, 0.2, (3, 1)) + generator.normal(0, 1.0, (1, 80)) + np.zeros((3, 80))
        found = paired_difference(list(table))
        assert found.margin is not None
        assert found.p is not None
        assert (found.p < 0.05) == (abs(found.mean) > found.margin)
        exact = paired_difference(list(table - found.mean + found.margin))
        assert exact.p == pytest.approx(0.05), "a difference as large as its margin"


def test_where_seeds_test_on_other_clients_their_spread_is_all() -> None:
    by_seed = [np.array([1.0, 3.0]), np.array([2.0, 2.5, 4.5]), np.array([np.nan, 1.0])]
    found = paired_difference(by_seed, same_units=False)
    assert found.p == pytest.approx(stats.ttest_1samp([2.0, 3.0, 1.0], 0.0).pvalue)
    assert found.units == 1


def test_who_measured_nothing_does_not_count() -> None:
    table = np.array([[1.0, 2.0, np.nan, 3.0], [1.0, np.nan, 5.0, 3.5]])
    found = paired_difference(list(table))
    assert found.units == 2
    assert found.mean == pytest.approx(np.mean([[1.0, 3.0], [1.0, 3.5]]))
    nobody = paired_difference([np.array([np.nan])])
    assert math.isnan(nobody.mean)
    assert (nobody.error, nobody.p, nobody.margin) == (None, None, None)


def test_what_is_alike_everywhere_is_no_proof() -> None:
    same = paired_difference([np.zeros(50)])
    assert (same.mean, same.error, same.p, same.margin) == (0.0, 0.0, 1.0, 0.0)
    one_seed = paired_difference([np.array([2.0])])
    assert (one_seed.mean, one_seed.error, one_seed.p, one_seed.margin) == (2.0, None, None, None)
    assert paired_difference([np.full(3, 0.1)]).p == 0.25, "three of one sign"
    single = np.zeros(50)
    single[7] = 1.0
    assert (paired_difference([single]).p, paired_difference([single]).margin) == (1.0, None), (
        "one example decides none"
    )


def test_sums_in_another_order_are_no_difference() -> None:
    differences = np.zeros(200)
    differences[:4] = 1.0
    noisy = differences + 1e-15
    assert paired_difference([noisy]).chances[0].freedom == paired_difference([differences]).chances[0].freedom == 3


def test_holms_steps() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def test_of_many_that_are_alike_hardly_any_study_calls_one_different() -> None:
    generator, wrong = np.random.default_rng(3), 0
    for _ in range(300):
        found = [paired_difference([generator.normal(size=80)]).p for _ in range(10)]
        wrong += min(holm([one for one in found if one is not None])) < 0.05
    assert wrong / 300 <= 0.08
