"""Cohorts by the authors' rule; ours are in test_records.py."""

import numpy as np

from fedfeast.federation import sample_cohort_as_authors


def test_the_authors_schedule() -> None:
    cohorts = [sample_cohort_as_authors(range(100), 10, round_index) for round_index in range(4000)]
    assert cohorts[0] == [26, 86, 2, 55, 75, 93, 16, 73, 54, 95]
    assert cohorts[3999] == [88, 25, 66, 67, 4, 35, 51, 98, 27, 84]
    counts = np.bincount(np.concatenate(cohorts), minlength=100)
    assert (counts.min(), counts.max()) == (349, 452)


def test_only_those_who_may_be_drawn() -> None:
    assert sorted(sample_cohort_as_authors([4, 7], 10, 3)) == [4, 7]
