from collections.abc import Iterator
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfeast.methods.width.importance import Importance, count_macs, rank_positions
from fedfeast.networks import ResNet
from fedfeast.randomness import named_generator

PAPER = ResNet()
MASKABLE = 11_210_532  # scalars of ResNet-18 that are in no norm
SMALL = ResNet((4, 8), (1, 1), (1, 2), image_size=6, image_channels=1, classes=3)
modest = settings(derandomize=True, deadline=None, max_examples=60)
layerwise_or_not = pytest.mark.parametrize("layerwise", [False, True], ids=["global", "layerwise"])


def is_norm(name: str) -> bool:
    return name.endswith((".scale", ".shift"))


@cache
def paper_weights() -> Tensor:
    return PAPER.initial_weights(named_generator(0, "weights"))


@cache
def paper_ranks(layerwise: bool) -> Importance:
    return rank_positions(PAPER, paper_weights(), layerwise)


@pytest.fixture(scope="module", autouse=True)
def forget_half_a_gigabyte() -> Iterator[None]:
    yield
    paper_ranks.cache_clear()
    paper_weights.cache_clear()


@cache
def small_weights() -> Tensor:
    return SMALL.initial_weights(named_generator(0, "weights"))


def kept_by_tensor(network: ResNet, flat: Tensor, thresholds: Tensor) -> dict[str, int]:
    kept = network.layout.views(flat.abs() >= thresholds)
    return {name: int(view.sum()) for name, view in kept.items() if not is_norm(name)}


@pytest.mark.parametrize(
    ("budget", "millions", "fully_pruned"),
    [
        (25e6, 0.115, 11),
        (50e6, 0.169, 11),
        (100e6, 0.356, 7),
        (139e6, 0.580, 3),
        (200e6, 1.295, 3),
        (229e6, 1.765, 0),
        (300e6, 3.819, 0),
        (408e6, 6.944, 0),
        (500e6, 9.606, 0),
        (555.47e6, 11.211, 0),
    ],
)
def test_what_resnet_18_keeps_at_its_first_weights(budget: float, millions: float, fully_pruned: int) -> None:
    """The fact sheet's table 4.7, from other draws of the same distribution."""
    kept = kept_by_tensor(PAPER, paper_weights(), paper_ranks(False).thresholds(budget))
    assert len(kept) == 22
    assert sum(kept.values()) / 1e6 == pytest.approx(millions, rel=0.01)
    assert [count > 0 for count in kept.values()].count(False) == fully_pruned


@pytest.mark.parametrize(
    ("layerwise", "share", "megamacs"),
    [
        (False, 0.64, 416),
        (False, 0.36, 308),
        (False, 0.25, 265),
        (False, 0.16, 230),
        (False, 1 / 16, 149),
        (False, 0.04, 123),
        (False, 1 / 64, 53),
        (True, 0.25, 138.9),
        (True, 1 / 16, 34.7),
        (True, 0.04, 22.2),
        (True, 1 / 64, 8.7),
    ],
)
def test_the_native_shares_of_parameters_at_their_cost(layerwise: bool, share: float, megamacs: float) -> None:
    thresholds = paper_ranks(layerwise).thresholds(megamacs * 1e6)
    kept = sum(kept_by_tensor(PAPER, paper_weights(), thresholds).values())
    assert kept / MASKABLE == pytest.approx(share, rel=0.015 if megamacs > 60 else 0.035)  # costs are rounded


@layerwise_or_not
def test_groups_hold_every_maskable_weight_once(layerwise: bool) -> None:
    ranks = rank_positions(SMALL, small_weights(), layerwise)
    first = [name.split(".")[0] for name in SMALL.layout.shapes if not is_norm(name)]
    assert len(ranks.groups) == (len(set(first)) if layerwise else 1)
    assert set(first) == {"stem", "stage1", "stage2", "head2"}
    names: dict[int, str] = {}
    for name, view in SMALL.layout.views(torch.arange(SMALL.layout.size)).items():
        names |= dict.fromkeys(view.flatten().tolist(), name)
    members = [names[position] for group in ranks.groups for position in group.tolist()]
    assert len(members) == len([name for name in names.values() if not is_norm(name)])
    assert not any(map(is_norm, members))
    for group, sizes in zip(ranks.groups, ranks.sizes, strict=True):
        assert sizes.tolist() == sorted(small_weights()[group].abs().tolist(), reverse=True)


def test_layerwise_groups_of_resnet_18_are_its_stem_stages_and_classifier() -> None:
    assert [len(group) for group in paper_ranks(True).groups] == [
        1_728,
        147_456,
        524_288,
        2_097_152,
        8_388_608,
        51_300,
    ]


def loop_over_macs(network: ResNet, kept: Tensor) -> int:
    """Pixels of the output for every weight kept of a convolution, one for the classifier's, none for a bias."""
    pixels = {"stem": 36, "stage1": 36, "stage2": 9, "head2": 1}
    total = 0
    for name, view in network.layout.views(kept).items():
        if not is_norm(name) and not name.endswith(".bias"):
            total += pixels[name.split(".")[0]] * int(view.sum())
    return total


SMALL_MACS = SMALL.macs(SMALL.whole)


@modest
@given(st.booleans(), st.floats(0, 1.2 * SMALL_MACS))
def test_kept_weights_keep_the_budget(layerwise: bool, budget: float) -> None:
    flat = small_weights()
    thresholds = rank_positions(SMALL, flat, layerwise).thresholds(budget)
    kept = flat.abs() >= thresholds
    assert count_macs(SMALL, kept) == loop_over_macs(SMALL, kept) <= budget
    for name, view in SMALL.layout.views(thresholds).items():
        assert not is_norm(name) or (view == 0).all(), "norms are never masked"
    tensors = torch.zeros_like(kept)
    for view in SMALL.layout.views(tensors).values():
        view.fill_(True)
    assert thresholds[~tensors].isinf().all(), "pads are never kept"
    if budget >= SMALL_MACS:
        assert bool(kept[tensors].all())


@modest
@given(st.floats(0, 0.999 * SMALL_MACS))
def test_the_next_weight_by_size_would_exceed_the_budget(budget: float) -> None:
    flat = small_weights()
    kept = flat.abs() >= rank_positions(SMALL, flat, layerwise=False).thresholds(budget)
    left = [
        (float(size), name)
        for name, view in SMALL.layout.views(torch.where(kept, -1.0, flat.abs())).items()
        if not is_norm(name)
        for size in view.flatten()
        if size >= 0
    ]
    following = max(left)[0]
    smallest_kept = min(
        float(view.abs().min())
        for name, view in SMALL.layout.views(torch.where(kept, flat, torch.inf)).items()
        if not is_norm(name)
    )
    assert following < smallest_kept, "one threshold for all"
    more = flat.abs() >= torch.where(kept, 0, torch.full_like(flat, following))
    assert loop_over_macs(SMALL, more) > budget


@modest
@given(st.floats(0.0, 0.999))
def test_layerwise_every_group_keeps_the_same_share(share: float) -> None:
    flat = small_weights()
    ranks = rank_positions(SMALL, flat, layerwise=True)
    thresholds = ranks.thresholds(share * SMALL_MACS)
    kept = [int((flat.abs() >= thresholds)[group].sum()) for group in ranks.groups]
    shares = [(count / len(group), (count + 1) / len(group)) for count, group in zip(kept, ranks.groups, strict=True)]
    least, most = max(low for low, _ in shares), min(high for _, high in shares)
    assert least <= most, "some share s gives every group's count as the whole part of s times its size"
    one_more_in_each = 36 + 36 + 9 + 1
    assert loop_over_macs(SMALL, flat.abs() >= thresholds) + one_more_in_each > share * SMALL_MACS


def ranked(*sizes: float, macs: float = 10.0) -> Importance:
    """One group of weights of equal cost."""
    costs = torch.full((len(sizes),), macs, dtype=torch.float64).cumsum(0)
    return Importance([torch.arange(len(sizes))], [torch.tensor(sizes)], [costs], torch.zeros(len(sizes)))


@pytest.mark.parametrize(
    ("budget", "kept"),
    [
        (0, []),
        (9.9, []),
        (10, [4.0]),
        (39.9, [4.0]),  # three would fit, but the three of size 3 do not
        (40, [4.0, 3.0, 3.0, 3.0]),
        (49, [4.0, 3.0, 3.0, 3.0]),
        (50, [4.0, 3.0, 3.0, 3.0, 1.0]),
        (1e9, [4.0, 3.0, 3.0, 3.0, 1.0]),
    ],
)
def test_weights_of_equal_size_are_kept_together_or_dropped_together(budget: float, kept: list[float]) -> None:
    sizes = torch.tensor([4.0, 3.0, 3.0, 3.0, 1.0])
    thresholds = ranked(*sizes.tolist()).thresholds(budget)
    assert sizes[sizes >= thresholds].tolist() == kept


def test_a_bias_costs_nothing_and_is_kept_by_its_size() -> None:
    costs = torch.tensor([10.0, 10.0, 20.0], dtype=torch.float64)  # the second adds nothing
    ranks = Importance([torch.arange(3)], [torch.tensor([3.0, 2.0, 1.0])], [costs], torch.zeros(3))
    assert (torch.tensor([3.0, 2.0, 1.0]) >= ranks.thresholds(10)).tolist() == [True, True, False]


def test_thresholds_leave_the_ranking_as_it_was() -> None:
    ranks = rank_positions(SMALL, small_weights(), layerwise=False)
    once = ranks.thresholds(0.5 * SMALL_MACS)
    ranks.thresholds(0.1 * SMALL_MACS)
    assert torch.equal(ranks.thresholds(0.5 * SMALL_MACS), once)
