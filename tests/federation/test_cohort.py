"""Cohorts by the authors' rule and by chance; those of a fixed size are in test_records.py."""

import numpy as np

from fedfeast.federation import sample_cohort_as_authors, sample_cohort_poisson, sampling_rate


def test_the_authors_schedule() -> None:
    cohorts = [sample_cohort_as_authors(range(100), 10, round_index) for round_index in range(4000)]
    assert cohorts[0] == [26, 86, 2, 55, 75, 93, 16, 73, 54, 95]
    assert cohorts[3999] == [88, 25, 66, 67, 4, 35, 51, 98, 27, 84]
    counts = np.bincount(np.concatenate(cohorts), minlength=100)
    assert (counts.min(), counts.max()) == (349, 452)


def test_only_those_who_may_be_drawn() -> None:
    assert sorted(sample_cohort_as_authors([4, 7], 10, 3)) == [4, 7]


def test_each_client_is_drawn_by_itself() -> None:
    generator = np.random.default_rng(0)
    drawn = np.zeros((20_000, 4), dtype=bool)
    for row in drawn:
        row[[client // 10 for client in sample_cohort_poisson([0, 10, 20, 30], 0.3, generator)]] = True
    assert abs(drawn.mean(axis=0) - 0.3).max() < 0.015
    assert abs(np.corrcoef(drawn.T) - np.eye(4)).max() < 0.03
    assert (~drawn.any(axis=1)).mean() > 0.2  # nobody at all, 0.7^4
    assert sample_cohort_poisson([3, 5], 1.0, generator) == [3, 5]


def test_the_chance_gives_cohorts_of_the_size_asked_for() -> None:
    assert sampling_rate(40, 10) == 0.25
    assert sampling_rate(5, 10) == 1.0
