"""The robust rules against a loop over positions, on random slices."""

import math
from itertools import accumulate
from statistics import median_low

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfeast.errors import InvalidInput
from fedfeast.federation.aggregation.robust import Aggregation, BufferedAnswers, Rule, clip_factors, combine
from fedfeast.networks import Layout
from fedfeast.routing import ChosenSlices, LeadingSlices, MaskedPositions, SliceMap

LAYOUT = Layout.of({"w": (4, 3), "b": (5,)})
ROBUST: tuple[Rule, ...] = ("clipped-mean", "trimmed-mean", "median")


def naive(changes: np.ndarray, weights: list[float], factors: list[float], rule: Rule, share: float) -> list[float]:
    """One position after another, in plain Python."""
    combined = []
    for column in changes.T:
        said = [
            (float(value) * f, w, f) for value, w, f in zip(column, weights, factors, strict=True) if value == value
        ]
        if not said:
            combined.append(0.0)
        elif rule == "clipped-mean" or len(said) < 3:
            combined.append(sum(value * w for value, w, _ in said) / sum(w for _, w, _ in said))
        else:
            cap = median_low([w for _, w, _ in said]) if rule == "median" else math.inf
            voices = sorted((value, min(w, cap) * f) for value, w, f in said)
            cut = 0 if rule == "median" else min(math.ceil(round(share * len(voices), 9)), (len(voices) - 1) // 2)
            kept = voices[cut : len(voices) - cut]
            total = sum(w for _, w in kept)
            if rule == "median":
                up_to = list(accumulate(w for _, w in kept))
                lower = next(value for (value, _), passed in zip(kept, up_to, strict=True) if passed >= total / 2)
                upper = next(value for (value, _), passed in zip(kept, up_to, strict=True) if passed > total / 2)
                combined.append((lower + upper) / 2)
            else:
                combined.append(sum(value * w for value, w in kept) / total)
    return combined


@given(
    seed=st.integers(0, 2**32 - 1),
    clients=st.integers(1, 9),
    rule=st.sampled_from(ROBUST),
    share=st.floats(0.05, 0.45),
)
@settings(derandomize=True, deadline=None, max_examples=150)
def test_the_rules_equal_a_loop_over_positions(seed: int, clients: int, rule: Rule, share: float) -> None:
    generator = np.random.default_rng(seed)
    changes = generator.normal(size=(clients, 40)).astype(np.float32)
    changes[generator.random(changes.shape) < generator.random(40)] = np.nan
    weights = generator.integers(1, 50, clients).astype(float).tolist()
    norms = generator.gamma(2.0, size=clients).tolist()
    factors = clip_factors(norms, 1.0)
    assert factors.tolist() == pytest.approx([min(1.0, norm**-2) for norm in norms])
    options = Aggregation(rule, trim_share=share)
    got = combine(torch.from_numpy(changes), torch.tensor(weights, dtype=torch.float64), factors, options)
    assert got.tolist() == pytest.approx(naive(changes, weights, factors.tolist(), rule, share), rel=1e-5, abs=1e-6)


def random_map(generator: np.random.Generator) -> SliceMap:
    rows, columns, length = (int(generator.integers(1, most + 1)) for most in LAYOUT.shapes["w"] + LAYOUT.shapes["b"])
    kind = generator.integers(3)
    if kind == 0:
        return LeadingSlices.of(LAYOUT, {"w": (rows, columns), "b": (length,)})
    if kind == 1:
        axes = [torch.from_numpy(np.sort(generator.choice(4, rows, replace=False)))]
        axes.append(torch.from_numpy(np.sort(generator.choice(3, columns, replace=False))))
        return ChosenSlices.of(LAYOUT, {"w": tuple(axes)})
    return MaskedPositions.of(LAYOUT, torch.from_numpy(generator.random(LAYOUT.size) < 0.5))


@given(seed=st.integers(0, 2**32 - 1), clients=st.integers(0, 7), rule=st.sampled_from(ROBUST), bounded=st.booleans())
@settings(derandomize=True, deadline=None, max_examples=80)
def test_unequal_slices_are_merged_position_by_position(seed: int, clients: int, rule: Rule, bounded: bool) -> None:
    generator = np.random.default_rng(seed)
    previous = torch.from_numpy(generator.normal(size=LAYOUT.size))
    options, bound = Aggregation(rule, clip_multiple=1.5), 2.0 if bounded else None
    answers = BufferedAnswers(LAYOUT.size, clients, previous.dtype, options, bound)
    table = np.full((clients, LAYOUT.size), np.nan)
    norms, weights = [], []
    for row in table:
        slice_map = random_map(generator)
        change = torch.from_numpy(generator.normal(size=slice_map.layout.size))
        slice_map.scatter_(torch.from_numpy(row), change)
        norms.append(float(torch.linalg.vector_norm(slice_map.pack(change))))
        weights.append(float(generator.integers(1, 9)))
        answers.add(slice_map, change, norms[-1], weights[-1], None)
    merged = answers.merged_with(previous)
    assert answers.answered().tolist() == (~np.isnan(table).all(axis=0)).tolist()
    if not norms:
        assert torch.equal(merged, previous)
        return
    limit = 2.0 if bounded else 1.5 * float(np.median(norms))
    factors = [min(1.0, (limit / norm) ** 2) if norm else 1.0 for norm in norms]
    expected = previous.numpy() + naive(table, weights, factors, rule, options.trim_share)
    np.testing.assert_allclose(merged.numpy(), expected, rtol=1e-9, atol=1e-12)
    untouched = np.isnan(table).all(axis=0)
    assert np.array_equal(merged.numpy()[untouched], previous.numpy()[untouched])


@pytest.mark.parametrize("rule", ["trimmed-mean", "median"])
@pytest.mark.parametrize("claimed", [1.0, 1e6])
def test_one_liar_among_three_moves_nothing_beyond_the_honest(rule: Rule, claimed: float) -> None:
    changes, weights = torch.tensor([[1.0], [2.0], [-1e6]]), torch.tensor([1.0, 3.0, claimed], dtype=torch.float64)
    got = combine(changes, weights, torch.ones(3, dtype=torch.float64), Aggregation(rule))
    assert 1.0 <= float(got) <= 2.0


def test_the_further_a_change_is_off_the_less_it_counts() -> None:
    kept = clip_factors([0.0, 1.0, 2.0, 4.0, 20.0], 2.0) * torch.tensor([0.0, 1.0, 2.0, 4.0, 20.0])
    assert kept.tolist() == pytest.approx([0.0, 1.0, 2.0, 1.0, 0.2])


def test_two_contributors_take_the_clipped_mean() -> None:
    changes, factors = torch.tensor([[1.0], [-100.0]]), torch.tensor([1.0, 0.01], dtype=torch.float64)
    for rule in ROBUST:
        got = combine(changes, torch.tensor([3.0, 1.0], dtype=torch.float64), factors, Aggregation(rule))
        assert float(got) == pytest.approx((3 * 1.0 - 1.0) / 4)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"clip_multiple": 0.0}, "clip_multiple = 0.0"),
        ({"trim_share": 0.5}, "trim_share = 0.5"),
        ({"refuse_multiple": -1.0}, "refuse_multiple = -1.0"),
    ],
)
def test_options_out_of_range_are_said(options: dict[str, float], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Aggregation(**options)  # type: ignore[arg-type]
