from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import COUNTABLE_SPACE

from fedfeast.evaluation.exposure import Exposure
from fedfeast.evaluation.slice_regions import ActivatedSupport, cut_regions
from fedfeast.networks import Architecture, ElasticResNet
from fedfeast.population import Population
from fedfeast.routing import LeadingSlices, envelope_of
from fedfeast.variants import Variant, VariantCache

SPACE = replace(COUNTABLE_SPACE, stem_channels=4, stage_channels=(6, 8), depths=(0, 1, 2), widths=(0.3, 0.6, 1.0))
TINY = ElasticResNet(SPACE)

architectures = st.builds(
    Architecture,
    st.tuples(*[st.sampled_from(TINY.space.depths)] * 2),
    st.tuples(*[st.sampled_from(TINY.space.expansions)] * 2),
    st.tuples(*[st.integers(0, 2)] * 3),
)
caches = st.lists(
    architectures.map(lambda architecture: Variant.of(TINY, architecture)),
    min_size=1,
    max_size=6,
    unique_by=lambda variant: variant.macs,
).map(VariantCache.of)
least, greatest = TINY.macs(TINY.space.smallest), TINY.macs(TINY.space.largest)
budgets = st.lists(st.floats(0.5 * least, 1.2 * greatest), min_size=2, max_size=6).map(np.array)
gammas = st.floats(0.0, 20.0)

modest = settings(derandomize=True, deadline=None, max_examples=40)


@modest
@given(caches, budgets)
def test_a_greater_budget_reaches_all_that_a_lesser_does(cache: VariantCache, budgets_macs: np.ndarray) -> None:
    regions = cut_regions(TINY, cache)
    ordered = np.sort(budgets_macs)
    exposure = Exposure.of(regions, cache, ordered, np.ones(len(ordered)))
    routed, sizes = regions.routed()[:, exposure.affordable], regions.num_parameters  # (regions, clients)
    affordable = [cache.affordable(budget) for budget in ordered]
    positions = [
        set(LeadingSlices.of(TINY.layout, TINY.shapes(envelope_of(variants, TINY))).index().tolist())
        if variants
        else set()
        for variants in affordable
    ]
    for client in range(len(ordered) - 1):
        assert set(affordable[client]) <= set(affordable[client + 1])
        assert positions[client] <= positions[client + 1]
        assert (routed[:, client] <= routed[:, client + 1]).all()
    assert [sizes[column].sum() for column in routed.T] == [len(reached) for reached in positions]
    assert (regions.routed_from <= regions.activated_from).all()


@modest
@given(caches, budgets, st.data())
def test_expected_masses_are_the_means_over_all_cohorts(
    cache: VariantCache, budgets_macs: np.ndarray, data: st.DataObject
) -> None:
    budgets_macs = np.maximum(budgets_macs, cache[0].macs)  # the paper's case: everybody takes part
    num_clients = len(budgets_macs)
    examples = np.array(data.draw(st.lists(st.integers(1, 100), min_size=num_clients, max_size=num_clients)))
    cohort_size = data.draw(st.integers(1, num_clients))
    regions = cut_regions(TINY, cache)
    exposure = Exposure.of(regions, cache, budgets_macs, examples)
    routed = regions.routed()[:, exposure.affordable] * examples
    activated = regions.multiplicities()[:, exposure.affordable] * examples
    cohorts = [list(cohort) for cohort in combinations(range(num_clients), cohort_size)]
    for masses, expected in (
        (routed, exposure.expected_routed_mass(cohort_size)),
        (activated, exposure.expected_activation_mass(cohort_size)),
    ):
        mean = sum(masses[:, cohort].sum(axis=1) for cohort in cohorts) / len(cohorts)
        np.testing.assert_allclose(expected, mean, rtol=1e-10)


@modest
@given(caches, budgets, gammas, gammas, st.floats(0.1 * least, 2.0 * greatest))
def test_the_routed_share_never_falls_with_gamma(
    cache: VariantCache, budgets_macs: np.ndarray, gamma: float, other_gamma: float, cap_macs: float
) -> None:
    exposure = Exposure.of(cut_regions(TINY, cache), cache, budgets_macs, np.ones(len(budgets_macs)))
    population = Population(budgets_macs)
    lesser, greater = (
        exposure.routed_sum(population.data_shares(power, cap_macs)) for power in sorted((gamma, other_gamma))
    )
    assert (lesser <= greater + 1e-12).all()
    assert (greater <= 1 + 1e-12).all()


@modest
@given(caches, architectures)
def test_never_activated_is_the_rest_of_the_union_of_slices(cache: VariantCache, architecture: Architecture) -> None:
    own, *others = (
        set(LeadingSlices.of(TINY.layout, TINY.shapes(one)).index().tolist())
        for one in (architecture, *(variant.architecture for variant in cache))
    )
    expected = len(own.difference(*others)) / len(own)
    support = ActivatedSupport.of(TINY, cache.variants)
    places = [TINY.space.expansions.index(one) for one in architecture.expansions]
    row = (np.array([one]) for one in (architecture.depths, places, architecture.width_indices))
    assert abs(float(support.never_activated_shares(*row)[0]) - expected) < 1e-12
