"""What FEAST's authors ran of each compared method, counted against what their paper and code say of it."""

import csv
from collections import Counter
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, LocalSgd, Method
from fedfeast.methods import METHODS, Fiarse, HeteroFL, ScaleFL
from fedfeast.methods.width.importance import count_macs
from fedfeast.networks import ResNet
from fedfeast.networks.normalisation import ByBatch
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.recipe import resolve_recipe

# The budgets of the baselines (seed 0, from 25M on) and the examples of each client that followed from them.
CLIENTS = [
    Client(index, f"client-{index:03}", float(row["budget_macs"]), int(row["examples"]))
    for index, row in enumerate(
        csv.DictReader(Path(__file__).with_name("authors_clients.csv").read_text().splitlines())
    )
]
PARTICIPATIONS = 400  # of each client in 4000 rounds, on average
METHODS_RUN = ("heterofl", "scalefl", "fiarse", "superfednas", "deepfednas")


@cache
def authors(name: str, **options: Any) -> Method:
    further = {f"method.{key}": value for key, value in options.items()}
    return outline(load_recipe("cifar100-paper", {"method.name": name, "method.preset": "authors", **further})).method


@cache
def initial(name: str) -> torch.Tensor:
    return authors(name).network.initial_weights(named_generator(0, "weights"))


def plan(method: Method, *clients: Client) -> list[Assignment]:
    flat = initial("fiarse") if isinstance(method, Fiarse) else torch.zeros(1)
    return method.plan_round(method.initial_state(), flat, clients, 0, named_generator(0))[0]


def petamacs(macs: list[float]) -> str:
    """Three times the forward passes' MACs, over all examples of all rounds."""
    held = [client.num_examples for client in CLIENTS]
    return f"{3 * PARTICIPATIONS * np.dot(held, macs) / 1e15:.2f}"


def test_their_clients() -> None:
    assert (len(CLIENTS), sum(client.num_examples for client in CLIENTS)) == (100, 45_000)


def heterofl() -> HeteroFL:
    method = authors("heterofl")
    assert isinstance(method, HeteroFL)
    return method


def test_heterofl_by_the_nominal_costs() -> None:
    method = heterofl()
    assert [point.price for point in method.operating_points()] == [
        2_148_437,
        8_593_750,
        34_375_000,
        137_500_000,
        550_000_000,
    ]
    planned = plan(method, *CLIENTS)
    widths = Counter(one.architectures[0].channels[0] / 64 for one in planned)  # type: ignore[attr-defined]
    assert [widths[width] for width in method.widths] == [10, 21, 38, 31, 0]
    prices = {point.architecture: point.price for point in method.operating_points()}
    assert petamacs([prices[one.architectures[0]] for one in planned]) == "14.97"
    assert not method.keeps_budgets, "34.4M are said to cost what costs 35.1M"
    assert any(method.served_macs(one) > one.client.budget_macs for one in planned)
    assert [one.weight for one in planned] == [client.num_examples for client in CLIENTS]


def test_our_heterofl_keeps_the_true_costs() -> None:
    method = outline(load_recipe("cifar100-paper", {"method.name": "heterofl"})).method
    widths = Counter(one.architectures[0].channels[0] / 64 for one in plan(method, *CLIENTS))  # type: ignore[attr-defined]
    assert [widths[width] for width in (1, 1 / 2, 1 / 4, 1 / 8)] == [10, 21, 37, 32]
    assert method.keeps_budgets


def test_heterofls_scaler_enlarges_what_identity_shortcuts_carry() -> None:
    """Pooled features grow to 3.3, 11.9 and 45.5 times at 1/2, 1/4 and 1/8; the fact sheet measured that."""
    network, flat = heterofl().network, initial("heterofl")
    assert isinstance(network, ResNet)
    assert (network.activation, network.initialisation) == ("after", "he-normal")
    assert network.layout.num_parameters == 11_220_132
    images = torch.from_numpy(named_generator(0, "images").normal(size=(16, 3, 32, 32))).float()
    growth = []
    for tier in heterofl().tiers[-2:0:-1]:
        pooled = []
        for level in (tier.trained, network.narrowed(tier.trained.divisor)):
            weights = dict(network.layout.views(flat, network.shapes(level)))
            # An identity in place of the classifier: as many classes as pooled features.
            weights["head4.weight"], weights["head4.bias"] = torch.eye(level.channels[-1]), torch.zeros(1)
            (features,) = network.forward(weights, images, level, ByBatch())
            pooled.append(float(features.norm()))
        growth.append(pooled[0] / pooled[1])
    assert growth == pytest.approx([3.3, 11.9, 45.5], rel=0.1)


def test_scalefls_levels_and_who_trains_them() -> None:
    method = authors("scalefl")
    assert isinstance(method, ScaleFL)
    planned = plan(method, *CLIENTS)
    served = {tier.trained: tier.served for tier in method.tiers}
    convolutions = [float(method.network.convolution_macs(served[one.architectures[0]])) for one in planned]
    assert sorted(Counter(convolutions).items()) == [
        (35_330_048, 53),
        (72_187_904, 14),
        (127_066_880, 23),
        (555_417_600, 10),
    ]
    assert petamacs(convolutions) == "15.22"
    below = sum(macs > one.client.budget_macs for macs, one in zip(convolutions, planned, strict=True))
    assert below == 32, "they are given level 1 anyway"


def test_fiarse_dense_and_logical_compute() -> None:
    method = authors("fiarse")
    assert isinstance(method, Fiarse)
    assert method.nominal_macs is not None
    assert petamacs([method.nominal_macs] * 100) == "29.97"
    assert petamacs([min(client.budget_macs, method.nominal_macs) for client in CLIENTS]) == "19.12"


@pytest.mark.parametrize(("label", "costs"), [(25e6, 101e6), (50e6, 145e6), (229e6, 321e6), (408e6, 453e6)])
def test_fiarses_labels_are_shares_of_the_parameters(label: float, costs: float) -> None:
    """What a network labelled with these MACs costs at its first weights, by the fact sheet."""
    method = authors("fiarse")
    (assignment,) = plan(method, Client(0, "client", label, 10))
    kept = assignment.slice_map.mask  # type: ignore[attr-defined]
    masked = 11_210_532
    assert int(kept.sum()) - 9_600 == int(label / 555e6 * masked)
    assert method.served_macs(assignment) == count_macs(method.network, kept) == pytest.approx(costs, rel=0.02)  # type: ignore[arg-type]
    assert not method.keeps_budgets


def test_everyone_keeps_some_of_fiarse_and_the_richest_all() -> None:
    poorest, rich, richest = plan(authors("fiarse"), *(Client(0, "", budget, 10) for budget in (1.0, 555e6, 1.5e9)))
    assert authors("fiarse").trains(1.0)
    assert poorest.slice_map.payload == 9_600 + 11_210_532 // 256
    assert rich.slice_map.payload == richest.slice_map.payload == 11_220_132


def test_fiarses_own_optimiser() -> None:
    common = LocalSgd(1e-4, 10.0, momentum=0.9, learning_rate=0.025)
    method = authors("fiarse")
    own = method.optimiser(common)
    assert (own.learning_rate, own.momentum, own.weight_decay, own.clip_norm) == (0.05, 0.0, 0.0, inf)
    assert isinstance(method, Fiarse)
    assert (method.gradient, method.membership, method.weighting) == ("released", "delta", "samples")
    for other in ("heterofl", "scalefl", "superfednas", "deepfednas"):
        assert authors(other).optimiser(common) == common


def test_fiarses_points_are_labelled_and_cost_more() -> None:
    points = authors("fiarse", num_points=3).operating_points()
    assert [point.price for point in points] == [24_919_500, 289_959_750, 555_000_000]
    assert points[0].price < 24_957_968, "the least budget of their draw is served"
    deployed = [authors("fiarse").deploy(initial("fiarse"), point) for point in points]
    assert deployed[0].macs > 4 * points[0].price
    assert deployed[-1].macs == 555_468_800


@pytest.mark.parametrize("name", METHODS_RUN)
def test_a_preset_is_kept_as_its_options_below_those_given(name: str) -> None:
    recipe = load_recipe("cifar100-paper", {"method.name": name, "method.preset": "authors"})
    options = METHODS[name].presets["authors"]
    kept = recipe.method.model_dump()
    assert {key: kept[key] for key in options} == options
    assert "preset" not in kept
    assert resolve_recipe(recipe, {"training.rounds": 5}).method == recipe.method, "as a run folder reads it"
    given = load_recipe("cifar100-paper", ["method.preset=authors", f"method.name={name}", "method.weighting=count"])
    assert given.method.model_dump() == {**kept, "weighting": "count"}


def test_an_option_of_a_preset_can_be_unset() -> None:
    settings = {"method.name": "heterofl", "method.preset": "authors", "method.nominal_macs": "none"}
    recipe = resolve_recipe(load_recipe("cifar100-paper", settings), {"seed": 1})
    assert recipe.method.model_dump()["nominal_macs"] is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("heterofl", "method.preset = 'mine' is no preset of heterofl: choose 'authors' or 'released'."),
        ("fedrolex", "method.preset = 'mine' is no preset of fedrolex: choose 'released'."),
        ("feast", "method.preset = 'mine' is no preset of feast: feast has none, so leave it out."),
    ],
)
def test_unknown_presets_are_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_recipe("digits", {"method.name": name, "method.preset": "mine"})


@pytest.mark.parametrize("name", METHODS)
def test_presets_and_former_defaults_name_options(name: str) -> None:
    options = {field for field in METHODS[name].__dataclass_fields__}  # type: ignore[attr-defined]
    for preset in METHODS[name].presets:
        assert METHODS[name].presets[preset].keys() <= options
        assert load_recipe("digits", {"method.name": name, "method.preset": preset}).method_name == name
    assert METHODS[name].former_defaults.keys() <= options
