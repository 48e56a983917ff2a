from dataclasses import replace
from math import prod

import pytest
import torch
from tiny import SPACE

from fedfeast.engines.graphs.gradient_plan import ALIGNMENT, GradientPlan, plan_gradients, plan_whole_gradients
from fedfeast.engines.graphs.tiles import weight_cut
from fedfeast.networks import Architecture, ElasticResNet

NETWORK = ElasticResNet(replace(SPACE, stem_stride=2, image_size=32, image_channels=3, classes=5))
ARCHITECTURES = [NETWORK.space.smallest, NETWORK.space.largest, Architecture((1, 0), (0.25, 0.5), (1, 0, 1))]
IMAGES = (64, 3, 18, 21)  # after the stem 9 x 11, in the second stage 5 x 6

every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)


def assert_places_fit(plan: GradientPlan, architecture: Architecture) -> None:
    shapes = NETWORK.shapes(architecture)
    assert list(plan.places) == list(shapes)
    end = 0
    for name, place in plan.places.items():
        assert place.size == prod(shapes[name])
        assert place.start % ALIGNMENT == 0
        assert end <= place.start < end + ALIGNMENT, "one after another, no two at the same place"
        end = place.start + place.parts * place.size
    assert plan.size == end


@every_architecture
def test_every_tensor_has_its_place(architecture: Architecture) -> None:
    plan = plan_gradients(NETWORK, architecture, IMAGES)
    assert_places_fit(plan, architecture)
    for name, place in plan.places.items():
        is_convolution = len(NETWORK.shapes(architecture)[name]) == 4
        assert (place.cut is not None) == is_convolution
        assert place.parts == (place.cut.parts if place.cut else 1)


@every_architecture
def test_cuts_are_those_of_the_pixels_that_a_convolution_puts_out(architecture: Architecture) -> None:
    plan, shapes = plan_gradients(NETWORK, architecture, IMAGES), NETWORK.shapes(architecture)
    for name, place in plan.places.items():
        if place.cut is None:
            continue
        outgoing, incoming, kernel, _ = shapes[name]
        pixels = 64 * (5 * 6 if name.startswith("stage2") else 9 * 11)
        stride = 2 if name in ("stem.conv", "stage2.block0.conv1") else 1
        assert place.cut == weight_cut(pixels, incoming, outgoing, kernel * kernel, stride), name
    assert max(place.parts for place in plan.places.values()) > 1


@every_architecture
def test_whole_gradients_come_in_one_part(architecture: Architecture) -> None:
    plan = plan_whole_gradients(NETWORK, architecture)
    assert_places_fit(plan, architecture)
    assert {(place.parts, place.cut) for place in plan.places.values()} == {(1, None)}


def test_a_place_is_a_view_of_the_buffer() -> None:
    plan = plan_gradients(NETWORK, NETWORK.space.smallest, IMAGES)
    buffer = torch.zeros(plan.size)
    for number, place in enumerate(plan.places.values(), start=1):
        assert not place.of(buffer).any()
        place.of(buffer).fill_(number)
    for number, place in enumerate(plan.places.values(), start=1):
        assert place.of(buffer).tolist() == [number] * (place.parts * place.size)
