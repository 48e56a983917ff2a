"""What every family must keep: plain torch layers that compute what the trained network computes."""

import ast
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from fedfeast.federation import Deployed
from fedfeast.networks import Architecture, Branch, ElasticResNet, Layout, Level, ResNet, SearchSpace
from fedfeast.networks.ensemble import Bases, Ensemble
from fedfeast.networks.normalisation import ByStatistics
from fedfeast.randomness import named_generator
from fedfeast.serving.families import elastic_resnet, resnet
from fedfeast.serving.families.registry import family_of, state_dict_of


def check_family(family: ModuleType, network: Any, architecture: Any) -> None:
    """Compare names, logits, parameters and imports of a family's file with the network that is trained."""
    layout = Layout.of(network.shapes(architecture))
    generator = named_generator(0, "family")
    flat = torch.from_numpy(generator.normal(size=layout.size) * 0.1).float()
    statistics = {}
    for name, shape in layout.shapes.items():
        if name.endswith(".scale"):
            mean, variance = (torch.from_numpy(generator.uniform(0.1, 1, shape)).float() for _ in range(2))
            statistics[name.removesuffix(".scale")] = (mean, variance)
    deployed = Deployed(network, architecture, layout, flat, 1, 1)
    table = family_of(network).describe(network, architecture)
    module = family.Network(table).eval()
    loaded = module.load_state_dict(state_dict_of(deployed, statistics), strict=False)
    assert all(name.endswith("num_batches_tracked") for name in loaded.missing_keys)
    assert loaded.unexpected_keys == []
    shape = (4, table["image_channels"], table["image_size"], table["image_size"])
    images = torch.from_numpy(generator.normal(size=shape)).float()
    torch.testing.assert_close(module(images), deployed(images, ByStatistics(statistics)))
    assert sum(parameter.numel() for parameter in module.parameters()) == network.parameters(architecture)
    assert _imports(family) == {"typing", "torch"}


def _imports(module: ModuleType) -> set[str]:
    tree = ast.parse(Path(str(module.__file__)).read_text())
    roots = set()
    for node in tree.body:  # what is imported for type checking alone is never run
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).split(".")[0])
    return roots


@pytest.mark.parametrize("branch", ["rectified", "signed"])
def test_the_elastic_resnet_computes_what_was_trained(branch: Branch) -> None:
    network = ElasticResNet(SearchSpace(image_size=9, classes=7), branch)
    check_family(elastic_resnet, network, Architecture((1, 0, 2, 0), (0.25, 0.1, 0.22, 0.1), (3, 1, 2, 0, 1)))


SMALL = ResNet((6, 10, 12), (2, 1, 2), (1, 2, 2), image_size=9, image_channels=2, classes=5)
EXITS = replace(SMALL, early_exits=True, stem_stride=2)
BLOCKS = replace(SMALL, exit_blocks=(1, 4, 5))


@pytest.mark.parametrize(
    ("network", "level"),
    [
        pytest.param(SMALL, Level((6, 10, 12), (3,)), id="whole"),
        pytest.param(replace(SMALL, activation="before"), Level((3, 5, 6), (3,)), id="narrow, activated before"),
        pytest.param(EXITS, Level((2, 4), (2,)), id="an early exit"),
        pytest.param(EXITS, Level((2, 4, 5), (1, 2, 3)), id="several exits, the last is served"),
        pytest.param(BLOCKS, Level((2, 4, 5), (4,), (2, 1, 1)), id="an exit within a stage"),
        pytest.param(BLOCKS, BLOCKS.whole, id="exits after blocks"),
        pytest.param(SMALL, Level((3, 5, 6), (3,), divisor=0.5), id="divided"),
        pytest.param(replace(EXITS, averages_exits=True), Level((2, 4, 5), (1, 2, 3)), id="the mean of exits"),
    ],
)
def test_the_resnet_computes_what_was_trained(network: ResNet, level: Level) -> None:
    check_family(resnet, network, level)


@pytest.mark.parametrize("numbers", [(1,), (0, 2)])
def test_an_ensemble_computes_what_was_trained(numbers: tuple[int, ...]) -> None:
    check_family(resnet, Ensemble(replace(SMALL, activation="before"), 3), Bases(numbers))
