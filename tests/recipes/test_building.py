"""The parts that a recipe describes, and the methods it may name."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.federation import ServerOptimiser
from fedfeast.methods import METHODS
from fedfeast.methods.supernet.feast import Feast
from fedfeast.planning.method_costs import list_methods
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method, build_parts, build_resnet, build_server


def refusal(name: str, **settings: Any) -> str:
    recipe = load_recipe(name, {key.replace("__", "."): value for key, value in settings.items()})
    with pytest.raises(InvalidInput) as caught:
        outline(recipe)
    return str(caught.value)


def test_a_level_table_that_some_clients_cannot_afford_names_the_first_and_the_remedies() -> None:
    """ScaleFL's own widths start at 72.6M, and the paper's budgets at 25M."""
    levels = [[1, 0.7], [2, 0.7], [3, 0.75], [4, 1.0]]
    message = refusal("cifar100-paper", method__name="scalefl", method__levels=levels)
    assert re.fullmatch(
        r"client \S+ has a budget of \d+ MACs, below the smallest network's 72589616 \(\d+ of 100 clients\): raise "
        r"population.least_macs, give the method a smaller network, or set population.below_smallest=exclude to leave "
        r"them out.",
        message,
    )
    settings = {"method.name": "scalefl", "method.levels": levels, "population.below_smallest": "exclude"}
    built = outline(load_recipe("cifar100-paper", settings))
    affording = np.flatnonzero(built.population.budgets_macs >= 72_589_616).tolist()
    assert list(built.participants) == affording
    assert f"({100 - len(affording)} of 100 clients)" in message


@pytest.mark.parametrize("below_smallest", ["error", "exclude"])
@pytest.mark.parametrize(
    "method",
    [
        {"method__name": "heterofl", "method__widths": [1.0, 0.9]},
        {"method__name": "scalefl", "method__levels": [[4, 0.9]]},
        {"method__name": "fiarse", "method__least_share": 0.8},
    ],
    ids=lambda method: str(method["method__name"]),
)
def test_a_level_table_that_no_client_can_afford(method: dict[str, Any], below_smallest: str) -> None:
    budgets = {"population__least_macs": 1e5, "population__greatest_macs": 2e5}
    message = refusal("digits", **budgets, **method, population__below_smallest=below_smallest)
    assert re.fullmatch(
        r"no client can afford the smallest network, \d+ MACs \(the largest budget is 1\d{5}\): "
        r"raise the budgets or give the method smaller networks.",
        message,
    )


@pytest.mark.parametrize(
    ("method", "beginning"),
    [
        ("fiarse", "clients train, but none can afford the smallest network that is served"),
        ("heterofl", "no client can afford the smallest network"),
    ],
)
def test_prices_of_a_larger_network_that_no_client_can_afford(method: str, beginning: str) -> None:
    """Neither by shares of the parameters, of which everybody keeps some."""
    message = refusal("digits", method__name=method, method__preset="authors", population__greatest_macs=2e6)
    assert re.fullmatch(
        rf"{beginning}, \d+ MACs \(the largest budget is \d+\): prices follow method.nominal_macs = "
        r"55[05]000000; set it to this network's MACs or raise the budgets.",
        message,
    )


def test_one_network_that_no_client_can_afford() -> None:
    """FedAvg leaves clients out without complaint, but not all of them."""
    message = refusal("digits", method__name="fedavg", method__max_macs=5e6, population__greatest_macs=1e6)
    assert re.fullmatch(
        r"no client can afford what the method trains \(the largest budget is \d+ MACs\): "
        r"raise the budgets or choose a smaller variant.",
        message,
    )


@pytest.mark.parametrize(
    "method",
    [
        {"method.name": "feast"},
        {"method.name": "superfednas"},
        {"method.name": "heterofl"},
        {"method.name": "heterofl", "method.backbone": "elastic"},
        {"method.name": "scalefl"},
        {"method.name": "fiarse"},
    ],
    ids=lambda method: "-".join(method.values()),
)
def test_every_residual_network_starts_with_the_branch_scale(method: dict[str, Any]) -> None:
    plain, scaled = (
        build_method(load_recipe("digits", {**method, "network.branch_scale": scale}))[0].network for scale in (1, 0.2)
    )
    before, after = (one.layout.views(one.initial_weights(named_generator(0, "weights"))) for one in (plain, scaled))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.endswith(".norm2.scale")}
    assert all((after[name] == torch.tensor(0.2)).all() for name in changed)


def test_the_baselines_network_follows_its_section_and_the_data() -> None:
    network = build_resnet(load_recipe("digits", {"resnet.blocks": [1, 2, 1, 1], "resnet.stem_stride": 2}))
    assert (network.stage_channels, network.blocks, network.stem_stride) == ((16, 32, 64, 128), (1, 2, 1, 1), 2)
    assert (network.image_size, network.image_channels, network.classes) == (8, 1, 10)
    paper, tiny = (build_resnet(load_recipe(f"{name}-paper")) for name in ("cifar100", "tinyimagenet"))
    assert (paper.image_size, paper.stem_stride, paper.classes) == (32, 1, 100)
    assert (tiny.image_size, tiny.stem_stride, tiny.classes) == (64, 2, 200)
    assert tiny.convolution_macs(tiny.whole) == paper.convolution_macs(paper.whole) == 555_417_600


def test_every_method_is_described_with_its_operating_points() -> None:
    listed = {one["name"]: one for one in list_methods()}
    assert listed.keys() == METHODS.keys()
    for one in listed.values():
        assert one["summary"].endswith(".")
        assert one["paper"]
        assert one["operating_points"]
    assert len(listed["feast"]["operating_points"]) == 56
    assert [point["macs"] for point in listed["heterofl"]["operating_points"]][-1] == 555_468_800
    assert listed["scalefl"]["options"]["levels"] is None
    assert listed["scalefl"]["presets"]["authors"]["levels"][0] == (3, 0.4)
    assert set(listed["heterofl"]["presets"]) == {"authors", "released"}


def test_operating_points_are_those_of_the_recipe() -> None:
    (fedavg,) = [one for one in list_methods("digits") if one["name"] == "fedavg"]
    assert [point["macs"] for point in fedavg["operating_points"]] == [128_320]


class Ahead(Feast):
    """FEAST with a server of its own."""

    def server_optimiser(self, common: ServerOptimiser) -> ServerOptimiser:
        return replace(common, lookahead=0.5)


def test_the_server_is_the_recipes_unless_the_method_has_another() -> None:
    recipe = load_recipe("digits", ["server.average=0.9"])
    plain, own = (method.build(build_parts(recipe)) for method in (Feast, Ahead))
    assert build_server(recipe, plain) == ServerOptimiser(average=0.9)
    assert build_server(recipe, own) == ServerOptimiser(average=0.9, lookahead=0.5)


def test_budgets_that_are_drawn_are_raised_by_their_setting() -> None:
    message = refusal("digits", population__least_macs=1e4)
    assert "below the smallest network's 128320" in message
    assert "raise population.least_macs, give the method" in message


def test_a_network_with_other_outputs_than_the_task_needs(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import fedfeast\nfrom torch import nn\n@fedfeast.elastic(width=[2, 4])\ndef net(width):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, 7))\n"
    )
    assert refusal("digits", network__builder=f"{tmp_path / 'mine.py'}:net") == (
        "builder net makes [7] of an example, and classification on digits needs [10]: end it with as many outputs, "
        "which the builder may ask for as classes."
    )
