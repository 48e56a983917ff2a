from functools import cache

import pytest
import torch
from torch import Tensor

from fedfeast.federation import Accumulator, Assignment, Client
from fedfeast.methods import FedRolex
from fedfeast.networks import Level, ResNet
from fedfeast.networks.normalisation import by_batch
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.routing import ChosenSlices

SMALL = ResNet((6, 10, 10), (2, 1, 2), (1, 2, 1), image_size=9, image_channels=2, classes=5, activation="before")
NARROW = Level((3, 5, 5), (3,))
ROUNDS = (0, 1, 4, 5, 7, 23)


@cache
def paper() -> FedRolex:
    method = outline(load_recipe("cifar100-paper", {"method.name": "fedrolex"})).method
    assert isinstance(method, FedRolex)
    return method


def window(size: int, whole: int, round_index: int) -> list[int]:
    """So many channels of a ring, from the round's on."""
    return sorted((round_index + step) % whole for step in range(size))


def plan(method: FedRolex, round_index: int, *budgets: float) -> list[Assignment]:
    cohort = [Client(index, f"client {index}", budget, 10 + index) for index, budget in enumerate(budgets)]
    flat = torch.zeros(method.network.layout.size)
    return method.plan_round(method.initial_state(), flat, cohort, round_index, named_generator(0))[0]


def chosen_of(method: FedRolex, level: Level, round_index: int) -> dict[str, tuple[list[int], ...]]:
    slices = method.slices_of(level, round_index)
    assert isinstance(slices, ChosenSlices)
    return {name: tuple(axis.tolist() for axis in axes) for name, axes in slices.chosen.items()}


def test_levels_and_costs_are_heterofls() -> None:
    points = paper().operating_points()
    assert [(point.parameters, point.macs) for point in points][-2:] == [
        (2_819_844, 139_322_368),
        (11_218_340, 555_468_800),
    ]
    (assignment,) = plan(paper(), 7, 150e6)
    assert assignment.slice_map.payload == 2_819_844
    assert assignment.weight == 10.0, "by examples"


@pytest.mark.parametrize("round_index", [0, 1, 63, 64, 500, 3999])
def test_every_layer_takes_the_rounds_window_of_its_own_channels(round_index: int) -> None:
    level = paper().tiers[2].trained
    assert level.channels == (16, 32, 64, 128)
    chosen = chosen_of(paper(), level, round_index)
    first, second, last = (window(size, 4 * size, round_index) for size in (16, 32, 128))
    assert chosen["stem.conv"] == (first, [0, 1, 2]), "every image channel"
    assert chosen["stage1.block1.conv2"] == (first, first)
    assert chosen["stage2.block0.norm1.scale"] == (first,), "norms come before the convolutions"
    assert chosen["stage2.block0.conv1"] == (second, first), "inputs follow the outputs of the layer before"
    assert chosen["stage2.block0.shortcut"] == (second, first)
    assert chosen["stage2.block0.conv2"] == (second, second)
    assert chosen["final_norm.shift"] == (last,)
    assert chosen["head4.weight"] == (list(range(100)), last), "every class"
    assert chosen["head4.bias"] == (list(range(100)),)
    assert round_index != 3999 or second != sorted(range(32)), "the windows have moved"


def test_over_a_cycle_every_channel_is_trained_equally_often() -> None:
    method = FedRolex(SMALL)
    counts: dict[str, Tensor] = {name: torch.zeros(shape[0]) for name, shape in SMALL.layout.shapes.items()}
    cycle = 30  # a multiple of 6 and of 10 channels
    for round_index in range(cycle):
        for name, axes in chosen_of(method, NARROW, round_index).items():
            counts[name][list(axes[0])] += 1
    for name, count in counts.items():
        expected = cycle if name.startswith("head") else cycle / 2
        assert count.tolist() == [expected] * len(count), name


def test_clients_of_one_round_share_their_window_and_the_next_rounds_is_another() -> None:
    first, second = plan(paper(), 5, 36e6, 100e6)
    assert torch.equal(first.slice_map.index(), second.slice_map.index())
    (later,) = plan(paper(), 6, 36e6)
    assert not torch.equal(first.slice_map.index(), later.slice_map.index())
    wide, narrow = (set(one.slice_map.index().tolist()) for one in plan(paper(), 5, 36e6, 25e6))
    assert narrow < wide, "windows of one round are nested"


def test_the_widest_level_is_the_whole_network_in_every_round() -> None:
    method = FedRolex(SMALL, widths=(1.0, 0.5))
    flat = torch.arange(float(SMALL.layout.size))
    views = SMALL.layout.views(flat)
    for round_index in ROUNDS:
        slices = method.slices_of(SMALL.whole, round_index)
        for name, own in slices.layout.views(slices.gather(flat)).items():
            assert torch.equal(own, views[name])


def drawn_flat() -> Tensor:
    return torch.from_numpy(named_generator(0, "weights").normal(size=SMALL.layout.size))


def drawn_images() -> Tensor:
    return torch.from_numpy(named_generator(0, "images").normal(size=(6, 2, 9, 9)))


@pytest.mark.parametrize("round_index", ROUNDS)
def test_a_narrow_network_is_the_whole_one_with_all_other_channels_silenced(round_index: int) -> None:
    """Norms of scale and shift 0 silence a channel; then inputs must follow outputs and shortcuts must be aligned."""
    flat, images = drawn_flat(), drawn_images()
    slices = FedRolex(SMALL).slices_of(NARROW, round_index)
    (logits,) = SMALL.forward(slices.layout.views(slices.gather(flat)), images, NARROW, by_batch)
    silenced = SMALL.layout.views(flat.clone())
    for name, view in silenced.items():
        if name.endswith((".scale", ".shift")):
            kept = window(len(view) // 2, len(view), round_index)
            view[[channel for channel in range(len(view)) if channel not in kept]] = 0
    (expected,) = SMALL.forward(silenced, images, SMALL.whole, by_batch)
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("round_index", ROUNDS)
def test_a_narrow_network_equals_a_standalone_one_built_from_the_chosen_channels(round_index: int) -> None:
    flat, images = drawn_flat(), drawn_images()
    alone = ResNet((3, 5, 5), (2, 1, 2), (1, 2, 1), image_size=9, image_channels=2, classes=5, activation="before")
    built, whole = alone.layout.zeros(torch.float64), SMALL.layout.views(flat)
    for name, view in alone.layout.views(built).items():
        picked = whole[name][window(view.shape[0], whole[name].shape[0], round_index)]
        if view.dim() > 1:
            picked = picked[:, window(view.shape[1], whole[name].shape[1], round_index)]
        view.copy_(picked)
    (expected,) = alone.forward(alone.layout.views(built), images, alone.whole, by_batch)
    slices = FedRolex(SMALL).slices_of(NARROW, round_index)
    (logits,) = SMALL.forward(slices.layout.views(slices.gather(flat)), images, NARROW, by_batch)
    torch.testing.assert_close(logits, expected)


def test_answers_are_averaged_where_windows_overlap() -> None:
    method = FedRolex(SMALL, widths=(1.0, 0.5), weighting="count")
    planned = plan(method, 4, 1e9, method.points[0].macs)
    answers, previous = Accumulator(SMALL.layout.size), torch.full((SMALL.layout.size,), -1.0)
    for assignment, value in zip(planned, (2.0, 6.0), strict=True):
        answers.add(assignment.slice_map, torch.full((assignment.slice_map.payload,), value), assignment.weight)
    merged = SMALL.layout.views(method.merge(previous, answers))
    assert merged["stem.conv"][:, 0, 0, 0].tolist() == [4.0, 2.0, 2.0, 2.0, 4.0, 4.0], "channels 4, 5 and 0"


def test_served_is_the_leading_slice() -> None:
    method = FedRolex(SMALL, widths=(1.0, 0.5))
    flat = drawn_flat()
    deployed = method.deploy(flat, method.operating_points()[0])
    views = SMALL.layout.views(flat, SMALL.shapes(NARROW))
    for name, own in deployed.layout.views(deployed.flat).items():
        assert torch.equal(own, views[name])
