from typing import Any

import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.federation import Accumulator, Client
from fedfeast.methods import NeFL
from fedfeast.networks import ResNet
from fedfeast.networks.nested_resnet import NestedLevel
from fedfeast.networks.normalisation import by_batch
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe

RELEASED = [[width**0.5, [2, 2, 2, 2]] for width in (0.4, 0.6, 0.8, 1.0)]


def built(recipe: str, **options: Any) -> NeFL:
    settings = {f"method.{name}": value for name, value in options.items()}
    settings |= {"method.name": "nefl", "population.below_smallest": "exclude"}
    method = outline(load_recipe(recipe, settings)).method
    assert isinstance(method, NeFL)
    return method


def test_levels_of_resnet_18() -> None:
    points = built("cifar100-paper").operating_points()
    assert [point.macs for point in points] == [20_059_980, 91_103_972, 202_988_880, 360_399_720, 555_468_800]
    assert [point.parameters for point in points] == [275_564, 1_821_854, 4_077_162, 7_212_576, 11_220_132]


def test_the_released_levels_have_a_fifth_of_the_parameters_and_so_on() -> None:
    points = built("cifar100-paper", levels=[[0.34**0.5, [2, 2, 2, 1]], *RELEASED]).operating_points()
    shares = [point.parameters / points[-1].parameters for point in points]
    assert shares == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0], abs=0.005)
    assert points[0].macs == 166_617_884


def test_norms_and_steps_are_averaged_within_a_level_alone() -> None:
    method = built("digits")
    small, large = Client(0, "small", 160e3, 1), Client(1, "large", 1e9, 3)
    flat = method.network.initial_weights(named_generator(0))
    planned, _ = method.plan_round({}, flat, [small, large], 0, named_generator(0))
    answers = Accumulator(flat.numel())
    for assignment, value in zip(planned, (1.0, 5.0), strict=True):
        answers.add(assignment.slice_map, torch.full((assignment.slice_map.layout.size,), value), assignment.weight)
    merged = method.network.layout.views(method.merge(flat, answers))
    assert float(merged["stem.conv"][0, 0, 0, 0]) == 4.0  # 1/4 of 1 and 3/4 of 5
    for number, value in ((1, 1.0), (5, 5.0)):
        assert float(merged[f"level{number}.stage1.block0.step"]) == value
        assert bool((merged[f"level{number}.stem.norm.scale"] == value).all())
    assert float(merged["level3.stage1.block0.step"]) == 1.0  # nobody trained it


def test_a_level_is_served_as_a_plain_resnet() -> None:
    method = built("digits")
    network, flat = method.network, method.network.initial_weights(named_generator(0))
    flat += 0.1 * torch.randn(flat.numel(), generator=torch.Generator().manual_seed(0))
    images = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    for level, point in zip(network.levels, method.operating_points(), strict=True):
        assert point.architecture == level
        deployed = method.deploy(flat, point)
        assert isinstance(deployed.network, ResNet)
        (trained,) = network.forward(network.layout.views(flat, network.shapes(level)), images, level, by_batch)
        torch.testing.assert_close(deployed(images, by_batch), trained)


def test_a_client_may_be_given_smaller_levels() -> None:
    method = built("cifar100-paper", flexibility=2)
    client = Client(0, "a", 400e6, 10)
    given = set()
    for round_index in range(40):
        (assignment,), _ = method.plan_round({}, torch.empty(0), [client], round_index, named_generator(round_index))
        given.add(assignment.architectures[0])
    assert given == {NestedLevel(2), NestedLevel(3), NestedLevel(4)}
    with pytest.raises(InvalidInput, match=r"method.flexibility = -1"):
        built("cifar100-paper", flexibility=-1)
