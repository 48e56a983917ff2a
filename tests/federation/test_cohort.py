import numpy as np

from fedfeast.federation import sample_cohort
from fedfeast.randomness import named_generator


def test_uniform_without_replacement() -> None:
    counts = np.zeros(10)
    for round_index in range(2000):
        cohort = sample_cohort(range(10), 3, named_generator(0, "cohort", round_index))
        assert len(set(cohort)) == 3
        counts[cohort] += 1
    assert np.abs(counts / 2000 - 0.3).max() < 0.04


def test_only_eligible_clients_and_never_more_than_there_are() -> None:
    assert sample_cohort([4, 7], 10, named_generator(0)) == [4, 7]
