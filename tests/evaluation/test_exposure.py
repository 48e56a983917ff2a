from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from time import perf_counter

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tiny import COUNTABLE_SPACE, cache_of

from fedfeast.errors import InvalidInput
from fedfeast.evaluation.exposure import (
    Exposure,
    bound_coefficients,
    estimate_scales,
    estimate_weights,
    measure_coverage,
)
from fedfeast.evaluation.slice_regions import Part, cut_regions
from fedfeast.networks import Architecture, ElasticResNet, SearchSpace
from fedfeast.population import Population, paper_population
from fedfeast.routing import LeadingSlices, envelope_of
from fedfeast.variants import read_cache

TINY = ElasticResNet(replace(COUNTABLE_SPACE, stem_channels=4, stage_channels=(6, 8)))
CACHE = cache_of(
    TINY,
    ((0, 0), (0.3, 0.3), (0, 0, 0)),
    ((1, 0), (0.3, 0.3), (0, 0, 0)),
    ((0, 1), (0.3, 0.3), (0, 0, 1)),
    ((1, 0), (0.6, 0.3), (1, 1, 0)),
)
REGIONS = cut_regions(TINY, CACHE)
MACS = [variant.macs for variant in CACHE]
# The last client affords nothing, and client 3 holds no example.
BUDGETS = np.array([MACS[0], MACS[3] * 2, MACS[1] + 1, MACS[3], MACS[0], MACS[2], MACS[1], MACS[0] - 1])
EXAMPLES = np.array([5, 30, 12, 0, 7, 21, 3, 50])
STEPS = np.array([1, 4, 2, 1, 1, 3, 1, 5])
EXPOSURE = Exposure.of(REGIONS, CACHE, BUDGETS, EXAMPLES)


def spread(values: NDArray[np.float64]) -> torch.Tensor:
    """Return a flat vector of the supernet with each region's value added at its scalars."""
    flat = TINY.layout.zeros(torch.float64)
    views = TINY.layout.views(flat)
    for tensor, bounds, value in zip(REGIONS.tensors, REGIONS.bounds, values, strict=True):
        view = views[REGIONS.tensor_names[tensor]]
        rows, columns = slice(*bounds[:2]), slice(*bounds[2:])
        (view[rows, columns] if view.ndim > 1 else view[rows]).add_(float(value))
    return flat


def add_slice(flat: torch.Tensor, architecture: Architecture, amount: float) -> None:
    LeadingSlices.of(TINY.layout, TINY.shapes(architecture)).increment_(flat, amount)


def routed_scalars(amounts: Sequence[float]) -> torch.Tensor:
    """Return sum_i amount_i r_i(u), client by client and scalar by scalar."""
    flat = TINY.layout.zeros(torch.float64)
    for budget, amount in zip(BUDGETS, amounts, strict=True):
        if affordable := CACHE.affordable(budget):
            add_slice(flat, envelope_of(affordable, TINY), amount)
    return flat


def activation_scalars(amounts: Sequence[float]) -> torch.Tensor:
    """Return sum_i amount_i h_i(u) under the full rule, client by client and scalar by scalar."""
    flat = TINY.layout.zeros(torch.float64)
    for budget, amount in zip(BUDGETS, amounts, strict=True):
        affordable = CACHE.affordable(budget)
        for variant in affordable[:1] + affordable[1:][-1:]:
            add_slice(flat, variant.architecture, amount)
        for variant in affordable[1:-1]:
            add_slice(flat, variant.architecture, amount / len(affordable[1:-1]))
    return flat


def exact_weights(pattern: int, cohort_size: int) -> NDArray[np.float64]:
    """Return beta_i for one pattern, the mean over all cohorts of participants."""
    participants = np.flatnonzero(EXPOSURE.affordable > 0)
    cohorts = list(combinations(participants, cohort_size))
    weights = np.zeros(len(BUDGETS))
    for cohort in cohorts:
        routers = [client for client in cohort if EXPOSURE.affordable[client] >= pattern]
        total = sum(EXAMPLES[client] for client in routers)
        for client in routers:
            weights[client] += EXAMPLES[client] / total if total else 0
    return weights / len(cohorts)


def test_clients_are_counted_by_what_they_afford() -> None:
    assert EXPOSURE.affordable.tolist() == [len(CACHE.affordable(budget)) for budget in BUDGETS]
    assert EXPOSURE.num_participants == 7


def test_masses_and_shares_agree_with_every_scalar() -> None:
    shares = Population(BUDGETS).data_shares(1.5, MACS[2])
    torch.testing.assert_close(spread(EXPOSURE.routed_sum(EXAMPLES)), routed_scalars(EXAMPLES.tolist()))
    torch.testing.assert_close(spread(EXPOSURE.activation_sum(EXAMPLES)), activation_scalars(EXAMPLES.tolist()))
    torch.testing.assert_close(spread(EXPOSURE.routed_sum(shares)), routed_scalars(shares.tolist()))
    routed, activated = EXPOSURE.expected_routed_mass(3), EXPOSURE.expected_activation_mass(3)
    torch.testing.assert_close(spread(routed), routed_scalars(EXAMPLES.tolist()) * 3 / 7)
    torch.testing.assert_close(spread(activated), activation_scalars(EXAMPLES.tolist()) * 3 / 7)


def test_a_cohort_beyond_all_participants_is_all_of_them() -> None:
    np.testing.assert_array_equal(EXPOSURE.expected_routed_mass(50), EXPOSURE.routed_sum(EXAMPLES))


def test_another_rule_changes_activation_and_not_routing() -> None:
    smallest = replace(EXPOSURE, rule="global-min")
    expected = np.where(REGIONS.activates[:, 0], EXAMPLES[:-1].sum(), 0)
    np.testing.assert_array_equal(smallest.activation_sum(EXAMPLES), expected)
    np.testing.assert_array_equal(smallest.routed_sum(EXAMPLES), EXPOSURE.routed_sum(EXAMPLES))


@pytest.mark.parametrize("pattern", [1, 2, 3, 4])
def test_weights_approach_the_mean_over_all_cohorts(pattern: int) -> None:
    weights = estimate_weights(EXPOSURE, pattern, 3, 3000, np.random.default_rng(pattern))
    expected = exact_weights(pattern, 3)
    assert (np.abs(weights.means - expected) <= 4 * weights.standard_errors + 1e-12).all()
    assert (weights.standard_errors < 0.01).all()


def test_scales_approach_the_mean_over_all_cohorts() -> None:
    scales = estimate_scales(EXPOSURE, STEPS, 3, 3000, np.random.default_rng(5))
    served = scales.routed_from <= 4
    expected = [exact_weights(pattern, 3) @ STEPS for pattern in scales.routed_from[served]]
    assert (np.abs(scales.means[served] - expected) <= 4 * scales.standard_errors[served] + 1e-12).all()
    assert (scales.standard_errors < 0.03).all()
    assert scales.psi_min == pytest.approx(min(expected), abs=0.05)
    assert scales.psi_max == pytest.approx(max(expected), abs=0.05)


def test_the_standard_error_is_the_spread_over_seeds() -> None:
    expected = exact_weights(1, 3) @ STEPS
    deviations = []
    for seed in range(100):
        scales = estimate_scales(EXPOSURE, STEPS, 3, 60, np.random.default_rng(seed))
        deviations.append((scales.means[0] - expected) / scales.standard_errors[0])
    assert 0.8 < np.std(deviations) < 1.2
    assert abs(np.mean(deviations)) < 0.4


@pytest.mark.parametrize("cohort_size", [7, 30])
def test_everybody_in_the_cohort_leaves_nothing_to_chance(cohort_size: int) -> None:
    for pattern in (1, 2, 3, 4):
        weights = estimate_weights(EXPOSURE, pattern, cohort_size, 3, np.random.default_rng(0))
        examples = np.where(EXPOSURE.affordable >= pattern, EXAMPLES, 0)
        np.testing.assert_allclose(weights.means, examples / examples.sum(), rtol=1e-12)
        np.testing.assert_allclose(weights.standard_errors, 0, atol=1e-8)
    scales = estimate_scales(EXPOSURE, STEPS, cohort_size, 3, np.random.default_rng(0))
    assert scales.means[0] == pytest.approx(EXAMPLES[:-1] @ STEPS[:-1] / EXAMPLES[:-1].sum(), rel=1e-12)
    assert scales.standard_errors[0] == pytest.approx(0, abs=1e-12)


def test_a_pattern_that_nobody_receives_weighs_nothing() -> None:
    poor = Exposure.of(REGIONS, CACHE, [MACS[0], MACS[1]], [10, 10])
    assert not estimate_weights(poor, 4, 1, 10, np.random.default_rng(0)).means.any()
    scales = estimate_scales(poor, [1, 3], 2, 10, np.random.default_rng(0))
    assert scales.num_routers.tolist() == [(poor.affordable >= pattern).sum() for pattern in scales.routed_from]
    assert (scales.means[scales.num_routers == 0] == 0).all()
    assert scales.served.tolist() == [True, True] + [False] * (len(scales.served) - 2)
    assert [scales.psi_min, scales.psi_max] == pytest.approx([2, 3])


def test_bound_coefficients() -> None:
    coefficients = bound_coefficients(4.0, [0.5, 0.25, 0.25])
    assert coefficients.sum_learning_rates == 1.0
    assert coefficients.sum_squared_learning_rates == 0.375
    assert (coefficients.initial_gap, coefficients.discrepancy, coefficients.noise) == (0.25, 0.0625, 0.09375)


def test_coverage_by_part_agrees_with_every_scalar() -> None:
    shares = Population(BUDGETS).data_shares(1.0, MACS[3])
    coverage = measure_coverage(EXPOSURE, shares)
    blocks = [Part(f"stage{stage}", block) for stage in (1, 2) for block in (0, 1)]
    assert [row.part for row in coverage] == [Part("stem", None), *blocks, Part("head", None)]
    clients, examples = [1 / 8] * 8, (EXAMPLES / EXAMPLES.sum()).tolist()
    routed = [routed_scalars(amounts) for amounts in (clients, examples, shares.tolist())]
    activated = activation_scalars(clients) > 0
    for row in coverage:
        prefix = row.part.stage if row.part.block is None else f"{row.part.stage}.block{row.part.block}"

        def within(flat: torch.Tensor, prefix: str = prefix) -> torch.Tensor:
            views = TINY.layout.views(flat)
            return torch.cat([view.flatten() for name, view in views.items() if name.startswith(prefix)])

        assert row.parameters == within(routed[0]).numel()
        assert row.routed_parameters == int((within(routed[0]) > 0).sum())
        assert row.activated_parameters == int(within(activated).sum())
        means = [float(within(flat).mean()) for flat in routed]
        assert [row.routed.clients, row.routed.examples, row.routed.targets] == pytest.approx(means)


def test_activated_reach_counts_the_clients_with_an_activating_variant() -> None:
    coverage = measure_coverage(EXPOSURE, np.full(8, 1 / 8))
    total = sum(
        sum(REGIONS.num_parameters[REGIONS.activates[:, : len(CACHE.affordable(budget))].any(axis=1)])
        for budget in BUDGETS
    )
    assert sum(row.activated.clients * row.parameters for row in coverage) == pytest.approx(total / 8)
    assert sum(row.activated.targets * row.parameters for row in coverage) == pytest.approx(total / 8)


def test_the_paper_population_takes_seconds_at_most() -> None:
    network = ElasticResNet(SearchSpace())
    cache = read_cache("cifar100-56", network)
    population = paper_population()
    examples = np.round(45_000 * population.data_shares(1.0, 600e6))
    started = perf_counter()
    exposure = Exposure.of(cut_regions(network, cache), cache, population.budgets_macs, examples)
    scales = estimate_scales(exposure, np.ceil(examples / 64), 10, 1000, np.random.default_rng(0))
    coverage = measure_coverage(exposure, population.data_shares(1.0, 600e6))
    assert perf_counter() - started < 10
    assert sum(row.parameters for row in coverage) == 55_682_916
    assert sum(row.routed_parameters for row in coverage) == 36_349_684
    assert sum(row.activated_parameters for row in coverage) == 14_396_308
    assert 0 < scales.psi_min < scales.psi_max
    assert (scales.standard_errors[scales.served] < 0.02 * scales.means[scales.served]).all()


def test_what_a_user_can_mend_is_named() -> None:
    with pytest.raises(InvalidInput, match="2 budgets and 1 numbers"):
        Exposure.of(REGIONS, CACHE, [1.0, 2.0], [3])
    with pytest.raises(InvalidInput, match="all 0"):
        Exposure.of(REGIONS, CACHE, [1.0, 2.0], [0, 0])
    with pytest.raises(InvalidInput, match="No client affords"):
        estimate_scales(Exposure.of(REGIONS, CACHE, [1.0], [3]), [1], 1, 10, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="1 numbers of local steps for 8 clients"):
        estimate_scales(EXPOSURE, [1], 1, 10, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="drawn 1 times"):
        estimate_weights(EXPOSURE, 1, 3, 1, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="psi_min = 0"):
        bound_coefficients(0.0, [0.1])
