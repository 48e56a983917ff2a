import pytest
import torch
from tiny import CACHE, NETWORK

from fedfeast.engines.graphs.context import GraphContext, Precision
from fedfeast.errors import InvalidInput
from fedfeast.federation import (
    Accumulator,
    Aggregation,
    Client,
    LocalSgd,
    Pass,
    activated_shares,
    count_activations,
    counted_by,
)
from fedfeast.methods import Feast
from fedfeast.networks import Layout
from fedfeast.routing import LeadingSlices

CPU = torch.device("cpu")
SMALL, MIDDLE, OTHER, LARGE = (variant.architecture for variant in CACHE)
STEPS = [[SMALL, LARGE], [SMALL, LARGE, MIDDLE], [SMALL, LARGE, OTHER], [SMALL, LARGE, MIDDLE], [MIDDLE, OTHER]]
PASSES = [[Pass(one, "student") for one in step] for step in STEPS]


def test_a_share_is_that_of_the_steps_whose_networks_hold_a_position() -> None:
    assignment = Feast(NETWORK, CACHE).assign(Client(0, "client", 1e12, 10))
    layout = assignment.slice_map.layout
    shares = activated_shares(NETWORK, layout, count_activations(PASSES), CPU)
    expected = torch.zeros(layout.size, dtype=torch.float64)
    for step in STEPS:
        seen = torch.zeros(layout.size, dtype=torch.bool)
        for architecture in step:
            for view in layout.views(seen, NETWORK.shapes(architecture)).values():
                view.fill_(True)
        expected += seen / len(STEPS)
    torch.testing.assert_close(shares, expected)
    assert 0.8 in shares
    assert 1.0 in shares
    assert not activated_shares(NETWORK, layout, {}, CPU).any(), "who took no step has no say"


@pytest.mark.parametrize("fused", [False, True])
def test_captured_rounds_count_the_same(fused: bool) -> None:
    if fused:
        pytest.importorskip("triton")
    context = GraphContext(
        Feast(NETWORK, CACHE), LocalSgd(), Precision(torch.float32, torch.float32), CPU, (4, 1, 8, 8), fused
    )
    assert (context.chunk > 1) == fused
    layout = NETWORK.layout
    expected = activated_shares(NETWORK, layout, count_activations(PASSES), CPU)
    got = context.activated_shares(count_activations(PASSES))
    inside = torch.zeros(layout.size, dtype=torch.bool)  # chunks reach into pads, which hold nothing
    for view in layout.views(inside).values():
        view.fill_(True)
    torch.testing.assert_close(got[inside], expected[inside])
    assert not context.activated_shares({}).any()


def test_answers_weigh_by_their_share_and_what_nobody_activated_stays() -> None:
    layout = Layout.of({"w": (4,)})
    slices, previous = LeadingSlices.of(layout, {"w": (3,)}), torch.tensor([9.0, 9.0, 9.0, 9.0])
    answers = Accumulator(4)
    answers.add(slices, torch.tensor([1.0, 1.0, 1.0]), 10.0, torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64))
    answers.add(slices, torch.tensor([4.0, 4.0, torch.nan]), 5.0, torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(answers.merged_with(previous), torch.tensor([2.0, 2.5, 9.0, 9.0]))


def test_a_methods_own_mask_still_leaves_out() -> None:
    shares = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)
    assert counted_by(shares, None) is shares
    assert counted_by(shares, torch.tensor([True, False, True])).tolist() == [1.0, 0.0, 0.25]


def test_rules_that_weigh_whole_answers_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"activated_share = true .* aggregation.rule = 'median' .*rule=mean"):
        Aggregation("median", activated_share=True)
