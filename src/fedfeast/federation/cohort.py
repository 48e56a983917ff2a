"""Who takes part in a round."""

from collections.abc import Sequence

import numpy as np

from fedfeast.randomness import legacy_stream, named_generator


def draw_cohort(eligible: Sequence[int], size: int, round_index: int, seed: int, as_authors: bool) -> list[int]:
    """Draw whom a round asks: from the seed, or as the paper's authors did."""
    if as_authors:
        return sample_cohort_as_authors(eligible, size, round_index)
    return sample_cohort(eligible, size, named_generator(seed, "cohort", round_index))


def sample_cohort(eligible: Sequence[int], cohort_size: int, generator: np.random.Generator) -> list[int]:
    """Draw clients uniformly without replacement, all of them where fewer are eligible."""
    size = min(cohort_size, len(eligible))
    return sorted(np.asarray(eligible)[generator.choice(len(eligible), size, replace=False)].tolist())


def sample_cohort_as_authors(eligible: Sequence[int], cohort_size: int, round_index: int) -> list[int]:
    """Draw clients as the paper's authors did, from a stream that the round's index seeds, in the order drawn."""
    size = min(cohort_size, len(eligible))
    drawn = legacy_stream(round_index).choice(len(eligible), size, replace=False)
    return [int(client) for client in np.asarray(eligible)[drawn]]
