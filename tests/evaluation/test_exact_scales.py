"""pi and psi counted, against all cohorts written out and against draws."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from tiny import CACHE, NETWORK

from fedfeast.errors import InvalidInput
from fedfeast.evaluation.exact_scales import nested_scales
from fedfeast.evaluation.exposure import Exposure, estimate_scales
from fedfeast.evaluation.slice_regions import cut_regions

PRICES = [variant.price for variant in CACHE]
BUDGETS = np.array([PRICES[0], PRICES[1], PRICES[1], PRICES[3], PRICES[0], PRICES[2], 0.0])  # the last affords nothing
EXAMPLES = np.array([3, 5, 8, 20, 1, 12, 50])
STEPS = np.ceil(EXAMPLES / 4)


@pytest.fixture(scope="module")
def exposure() -> Exposure:
    return Exposure.of(cut_regions(NETWORK, CACHE), CACHE, BUDGETS, EXAMPLES)


@pytest.mark.parametrize("cohort_size", [1, 3, 6, 9])
def test_counting_equals_going_through_all_cohorts(exposure: Exposure, cohort_size: int) -> None:
    clients = np.flatnonzero(exposure.affordable > 0).tolist()
    cohorts = list(combinations(clients, min(cohort_size, len(clients))))
    assert len(cohorts) == comb(6, min(cohort_size, 6))
    found = nested_scales(exposure, STEPS, cohort_size)
    assert [one.num_routers for one in found] == sorted({one.num_routers for one in found}), "nested, fewest first"
    assert found[-1].num_routers == 6
    for one in found:
        inside = [[i for i in cohort if exposure.affordable[i] >= one.routed_from] for cohort in cohorts]
        covered = [group for group in inside if group]
        psi = sum((EXAMPLES[group] * STEPS[group]).sum() / EXAMPLES[group].sum() for group in covered) / len(cohorts)
        assert one.coverage == pytest.approx(len(covered) / len(cohorts))
        assert one.scale == pytest.approx(psi)


def test_draws_estimate_the_same(exposure: Exposure) -> None:
    drawn = estimate_scales(exposure, STEPS, 3, 2000, np.random.default_rng(0))
    exact = {one.num_routers: one.scale for one in nested_scales(exposure, STEPS, 3)}
    for routers, mean, error in zip(drawn.num_routers, drawn.means, drawn.standard_errors, strict=True):
        assert abs(mean - exact[int(routers)]) <= 5 * error + 1e-9


def test_bad_input_is_refused(exposure: Exposure) -> None:
    with pytest.raises(InvalidInput, match="There are 3 numbers of local steps for 7 clients"):
        nested_scales(exposure, [1, 2, 3], 2)
    poor = Exposure.of(exposure.regions, CACHE, np.zeros(7), EXAMPLES)
    with pytest.raises(InvalidInput, match="No client affords a variant"):
        nested_scales(poor, STEPS, 2)
    rich = Exposure.of(exposure.regions, CACHE, BUDGETS, EXAMPLES * 10**8)
    with pytest.raises(InvalidInput, match="too many to count"):
        nested_scales(rich, STEPS, 3)
