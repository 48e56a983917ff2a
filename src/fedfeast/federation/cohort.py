"""Who takes part in a round."""

from collections.abc import Sequence

import numpy as np


def sample_cohort(eligible: Sequence[int], cohort_size: int, generator: np.random.Generator) -> list[int]:
    """Draw clients uniformly without replacement, all of them where fewer are eligible."""
    size = min(cohort_size, len(eligible))
    return sorted(np.asarray(eligible)[generator.choice(len(eligible), size, replace=False)].tolist())
