import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny import NETWORK

from fedfeast.errors import InvalidInput
from fedfeast.networks import Layout, ResNet
from fedfeast.networks.initialisation import draw_he_normal, draw_weights
from fedfeast.randomness import named_generator

LAYOUTS = (
    NETWORK.layout,
    ResNet((16, 32), (2, 1), (1, 2), classes=5, early_exits=True).layout,
    ResNet((16, 32), (2, 1), (1, 2), classes=5, activation="before").layout,
)


def bound_of(layout: Layout, name: str) -> float:
    weight = name.replace(".bias", ".weight")
    return 1 / math.sqrt(math.prod(layout.shapes[weight][1:]))


def is_drawn(name: str) -> bool:
    return not name.endswith((".scale", ".shift"))


def test_weights_follow_torch_defaults() -> None:
    for layout in LAYOUTS:
        for name, view in layout.views(draw_weights(layout, named_generator(0, "weights"))).items():
            if is_drawn(name):
                bound = bound_of(layout, name)
                assert 0.5 * bound < view.abs().max() <= bound
                if view.numel() > 100:
                    assert abs(float(view.mean())) < 0.2 * bound
                    assert abs(float(view.std()) / (bound / math.sqrt(3)) - 1) < 0.15
            else:
                assert (view == (1 if name.endswith(".scale") else 0)).all()


def test_tensors_are_drawn_one_after_another_in_torch_axis_order() -> None:
    for layout in LAYOUTS:
        views = layout.views(draw_weights(layout, named_generator(0, "weights")))
        generator = named_generator(0, "weights")
        for name, shape in layout.shapes.items():
            if is_drawn(name):
                bound = bound_of(layout, name)
                drawn = generator.random(shape, dtype=np.float32) * np.float32(2 * bound) - np.float32(bound)
                assert torch.equal(views[name], torch.from_numpy(drawn))


def test_hes_normal_by_outgoing_channels_with_heads_near_zero() -> None:
    """As torch's kaiming_normal_ in the mode fan_out draws convolutions."""
    for layout in LAYOUTS:
        for name, view in layout.views(draw_he_normal(layout, named_generator(0, "weights"))).items():
            if name.endswith((".shift", ".bias")):
                assert (view == 0).all()
            elif name.endswith(".scale"):
                assert (view == 1).all()
            else:
                fan_out = view.shape[0] * math.prod(view.shape[2:])
                expected = math.sqrt(2 / fan_out) if view.dim() == 4 else 0.01
                # Of few values the deviation is far from the distribution's.
                assert float(view.std()) / expected == pytest.approx(1, abs=4 / math.sqrt(2 * view.numel()))
                assert abs(float(view.mean())) < 0.3 * float(view.std())


@pytest.mark.parametrize("draw", [draw_weights, draw_he_normal])
def test_pads_stay_zero(draw: Any) -> None:
    for layout in LAYOUTS:
        flat = draw(layout, named_generator(0, "weights"))
        assert layout.size > layout.num_parameters
        for view in layout.views(flat).values():
            view.zero_()
        assert (flat == 0).all()


@pytest.mark.parametrize("draw", [draw_weights, draw_he_normal])
def test_a_branch_scale_changes_the_last_norm_of_every_branch_and_no_draw(draw: Any) -> None:
    for layout in LAYOUTS:
        generators = [named_generator(0, "weights") for _ in range(2)]
        plain, scaled = (
            layout.views(draw(layout, one, scale)) for one, scale in zip(generators, (1, 0.2), strict=True)
        )
        ends = [name for name in layout.shapes if name.endswith("norm2.scale")]
        assert ends
        for name in layout.shapes:
            assert torch.equal(scaled[name], torch.full_like(plain[name], 0.2) if name in ends else plain[name])
        assert generators[0].random() == generators[1].random(), "as many numbers are drawn"


@pytest.mark.parametrize("scale", [0.0, -0.2, math.inf, math.nan])
def test_a_branch_that_could_not_learn_is_refused(scale: float) -> None:
    for network in (NETWORK, ResNet()):
        with pytest.raises(InvalidInput, match=r"network.branch_scale = \S+: give a finite number above 0, e.g. 0.2"):
            replace(network, branch_scale=scale)
