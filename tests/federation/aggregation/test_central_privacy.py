"""The sensitivity of a round's sum by brute force over neighbouring cohorts, the noise on it, and its accounting."""

from itertools import chain, combinations
from math import exp

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import (
    Accumulator,
    Aggregation,
    Assignment,
    CentralPrivacy,
    CentralRound,
    Client,
    NormHistory,
    UpdatePolicy,
    spent_centrally,
)
from fedfeast.federation.aggregation.aggregator import Aggregator
from fedfeast.federation.aggregation.refusals import norm_of
from fedfeast.networks import Layout
from fedfeast.routing import ChosenSlices, LeadingSlices, MaskedPositions, SliceMap

LAYOUT = Layout.of({"w": (5,)})
SLICES: list[SliceMap] = [
    LeadingSlices.of(LAYOUT, {"w": (1,)}),
    LeadingSlices.of(LAYOUT, {"w": (3,)}),
    ChosenSlices.of(LAYOUT, {"w": (torch.tensor([1, 3]),)}),
    MaskedPositions.of(LAYOUT, torch.tensor([True, False, False, True, False])),
]
EXAMPLES = [400, 3, 20, 10]
PRIVACY = CentralPrivacy(clip_norm=2.0, noise_multiplier=0.5, usual_examples=10.0, most_weight=1.5)
RATE = 0.5
HOLDERS = torch.stack([RATE * torch.zeros(5).index_fill(0, one.index().long(), 1.0) for one in SLICES]).sum(0).double()
ALL = range(len(SLICES))
COHORTS = list(chain.from_iterable(combinations(ALL, size) for size in range(len(SLICES) + 1)))


def assignments() -> list[Assignment]:
    planned = [
        Assignment(Client(index, f"client-{index}", 1e6, EXAMPLES[index]), SLICES[index], (), EXAMPLES[index])
        for index in ALL
    ]
    return UpdatePolicy(central=CentralRound(PRIVACY, HOLDERS, 0)).weighed(planned)


def released(changes: list[Tensor], cohort: tuple[int, ...], noise_seed: int = 7, flat: Tensor | None = None) -> Tensor:
    """Return what a cohort's round releases, given each client's change at all five positions."""
    flat = torch.linspace(-1, 1, 5, dtype=torch.float64) if flat is None else flat
    policy = UpdatePolicy(central=CentralRound(PRIVACY, HOLDERS, noise_seed))
    aggregator = policy.aggregator(flat, len(cohort))
    planned = assignments()
    for index in cohort:
        sent = SLICES[index].gather(flat)
        returned = SLICES[index].gather(flat + changes[index])
        assert aggregator.take(planned[index], sent, returned) is None
    assert aggregator.norms == []  # nothing of one client is left to judge another by
    return aggregator.answers.merged_with(flat)


def hard_changes() -> list[list[Tensor]]:
    """Changes that try to move the sum far: huge, along one position, opposed, and at random."""
    generator = np.random.default_rng(3)
    aligned = [[torch.eye(5, dtype=torch.float64)[place] * 1e6 for _ in ALL] for place in range(5)]
    drawn = [
        [torch.from_numpy(generator.normal(size=5) * 10 ** generator.uniform(-2, 3)) for _ in ALL] for _ in range(20)
    ]
    return aligned + drawn


def test_no_client_moves_the_sum_by_more_than_the_sensitivity_and_one_does_by_as_much() -> None:
    assert PRIVACY.sensitivity == 3.0
    farthest = 0.0
    for changes in hard_changes():
        for cohort in COHORTS:
            for left_out in cohort:
                without = [torch.zeros(5) if index == left_out else one for index, one in enumerate(changes)]
                # The same noise: what is left is the difference of the sums, divided by public numbers.
                moved = released(changes, cohort) - released(without, cohort)
                farthest = max(farthest, float((moved * HOLDERS.clamp(min=1)).norm()))
                # Not to be drawn at all is the same as to add nothing.
                others = tuple(index for index in cohort if index != left_out)
                torch.testing.assert_close(released(changes, others), released(without, cohort), rtol=0, atol=1e-12)
    assert farthest <= PRIVACY.sensitivity * (1 + 1e-9)
    assert farthest == pytest.approx(PRIVACY.sensitivity)


def test_the_plain_mean_of_answers_would_have_no_such_bound() -> None:
    flat = torch.zeros(5, dtype=torch.float64)
    clipped = torch.tensor([0.0, 0, 0, 2.0, 0], dtype=torch.float64)
    for expected in (1, 1000):
        # A position that one client of a round holds follows it alone, however many others there are.
        with_it, without_it = Accumulator(5), Accumulator(5)
        for sums in (with_it, without_it):
            for _ in range(expected):
                sums.add(SLICES[1], SLICES[1].gather(flat), 1.0)
        with_it.add(SLICES[2], SLICES[2].gather(clipped), 1.0)
        moved = with_it.merged_with(flat) - without_it.merged_with(flat)
        assert float(moved.norm()) == 2.0


def test_the_released_vector_is_what_a_slow_sum_says() -> None:
    flat, changes = torch.linspace(-1, 1, 5, dtype=torch.float64), hard_changes()[-1]
    cohort = (0, 1, 3)
    expected = flat.clone()
    noise = np.random.default_rng(7).standard_normal(5) * 0.5 * 3.0
    for position in range(4):  # nobody is ever sent the last one
        total = noise[position]
        for index in cohort:
            held = SLICES[index].index().tolist()
            norm = sum(float(changes[index][one]) ** 2 for one in held) ** 0.5
            if position in held:
                weight = min(EXAMPLES[index] / 10, 1.5)
                total += weight * float(changes[index][position]) * min(1.0, 2.0 / norm)
        expected[position] += total / max(float(HOLDERS[position]), 1.0)
    torch.testing.assert_close(released(changes, cohort), expected)


def test_noise_has_its_deviation_wherever_anybody_may_hold_a_position() -> None:
    still = [torch.zeros(5, dtype=torch.float64) for _ in ALL]
    flat = torch.full((5,), 0.1)
    for cohort in [(), (0,)]:  # also where nobody of this round holds it
        drawn = torch.stack([released(still, cohort, seed, flat) for seed in range(4000)])
        assert torch.equal(drawn[:, 4], flat[4].expand(4000))  # nobody is ever sent it
        noise = (drawn - flat)[:, :4]
        wanted = 0.5 * 3.0 / HOLDERS[:4].clamp(min=1)
        torch.testing.assert_close(noise.std(0).double(), wanted, rtol=0.05, atol=0)
        assert float((noise.mean(0) / wanted).abs().max()) < 0.1
        correlation = np.corrcoef(noise.numpy().T) - np.eye(4)
        assert abs(correlation).max() < 0.07


def test_where_an_answer_does_not_count_it_adds_nothing() -> None:
    flat = torch.zeros(5, dtype=torch.float64)
    central = CentralRound(CentralPrivacy(1.0, 1e-9), HOLDERS, 0)
    aggregator = Aggregator(flat, Aggregation(), NormHistory(), 1, central=central)
    change = torch.tensor([0.3, 0.4, 0.0], dtype=torch.float64)
    aggregator.take(assignments()[1], flat[:3], change, torch.tensor([True, False, True]))
    assert aggregator.answers.merged_with(flat)[1] == pytest.approx(0.0, abs=1e-8)


def test_what_is_not_finite_is_left_out() -> None:
    flat = torch.zeros(5)
    aggregator = UpdatePolicy(central=CentralRound(PRIVACY, HOLDERS, 0)).aggregator(flat, 1)
    refusal = aggregator.take(assignments()[1], flat[:3], torch.tensor([0.0, torch.nan, 1.0]))
    assert refusal is not None
    assert torch.equal(aggregator.answers.merged_with(flat), released([], (), 0, flat))


def test_clipping_keeps_a_small_change_bit_for_bit() -> None:
    small = torch.tensor([0.1, 0.2])
    assert PRIVACY.clipped(small, norm_of(small)) is small


@pytest.mark.parametrize(("multiplier", "rate"), [(1.0, 0.1), (0.7, 0.02), (2.0, 0.5)])
def test_one_round_spends_what_the_two_distributions_differ_by(multiplier: float, rate: float) -> None:
    epsilon = spent_centrally(CentralPrivacy(1.0, multiplier), {rate: 1})
    # The sum along a client's own change, with and without it: a mixture of two normal densities against one.
    places = np.linspace(-12 * multiplier, 1 + 12 * multiplier, 2_000_001)
    without = np.exp(-((places / multiplier) ** 2) / 2)
    both = (1 - rate) * without + rate * np.exp(-(((places - 1) / multiplier) ** 2) / 2)
    step = (places[1] - places[0]) / (multiplier * np.sqrt(2 * np.pi))
    deltas = [
        step * np.maximum(one - exp(epsilon) * other, 0).sum() for one, other in ((both, without), (without, both))
    ]
    assert max(deltas) == pytest.approx(1e-5, rel=0.03)


def test_rounds_add_up_and_sampling_hides() -> None:
    privacy = CentralPrivacy(1.0, 1.0)
    once, often = spent_centrally(privacy, {0.05: 1}), spent_centrally(privacy, {0.05: 100})
    assert once < often < spent_centrally(privacy, {1.0: 100})
    mixed = spent_centrally(privacy, {0.05: 50, 0.01: 50})
    assert spent_centrally(privacy, {0.01: 100}) < mixed < often
    accounting = pytest.importorskip("dp_accounting")
    relation = accounting.NeighboringRelation.REPLACE_SPECIAL
    event = accounting.PoissonSampledDpEvent(0.05, accounting.GaussianDpEvent(1.0))
    renyi = accounting.rdp.RdpAccountant(neighboring_relation=relation).compose(event, 100).get_epsilon(1e-5)
    assert 0.7 * renyi < often < renyi  # which is never tighter
    assert spent_centrally(privacy, {}) == spent_centrally(privacy, {0.05: 0}) == 0.0
    # With hardly any noise nothing is claimed for sampling.
    loud = CentralPrivacy(1.0, 0.09)
    assert spent_centrally(loud, {0.05: 4}) == spent_centrally(loud, {1.0: 4})


@pytest.mark.parametrize(
    "options",
    [
        {"clip_norm": 0.0},
        {"noise_multiplier": -1.0},
        {"delta": 1.0},
        {"usual_examples": -3.0},
        {"most_weight": 2.0},
        {"least_holders": 0.0},
    ],
)
def test_options_out_of_range_are_said(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        CentralPrivacy(**{"clip_norm": 1.0, "noise_multiplier": 1.0, **options})
