"""Who takes part in a round."""

from collections.abc import Sequence

import numpy as np

from fedfeast.randomness import legacy_stream


def sample_cohort(eligible: Sequence[int], cohort_size: int, generator: np.random.Generator) -> list[int]:
    """Draw clients uniformly without replacement, all of them where fewer are eligible."""
    size = min(cohort_size, len(eligible))
    return sorted(np.asarray(eligible)[generator.choice(len(eligible), size, replace=False)].tolist())


def sample_cohort_poisson(eligible: Sequence[int], chance: float, generator: np.random.Generator) -> list[int]:
    """Draw each client by itself with the same chance: a cohort's size differs, and it may be empty."""
    return sorted(np.asarray(eligible)[generator.random(len(eligible)) < chance].tolist())


def sampling_rate(num_eligible: int, cohort_size: int) -> float:
    """Return the chance with which a client takes part in a round where cohorts have this size on average."""
    return min(1.0, cohort_size / num_eligible)


def sample_cohort_as_authors(eligible: Sequence[int], cohort_size: int, round_index: int) -> list[int]:
    """Draw clients as the paper's authors did, from a stream that the round's index seeds, in the order drawn."""
    size = min(cohort_size, len(eligible))
    drawn = legacy_stream(round_index).choice(len(eligible), size, replace=False)
    return [int(client) for client in np.asarray(eligible)[drawn]]
