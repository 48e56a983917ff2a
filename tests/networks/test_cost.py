import csv
import json
from dataclasses import replace
from importlib import resources

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fedfeast.networks import Architecture, ElasticResNet, SearchSpace
from fedfeast.networks.cost import count_convolution_macs, count_macs, count_parameters
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator

PAPER = SearchSpace()


@pytest.mark.parametrize(("classes", "parameters"), [(100, 55_682_916), (10, 55_590_666), (200, 55_785_416)])
def test_supernet_parameters(classes: int, parameters: int) -> None:
    space = replace(PAPER, classes=classes)
    assert count_parameters(space, space.largest) == parameters
    assert ElasticResNet(space).layout.num_parameters == parameters


def test_ends_of_the_space() -> None:
    assert count_macs(PAPER, PAPER.largest) == pytest.approx(2_677.84e6, abs=5e3)
    assert count_macs(PAPER, PAPER.smallest) == pytest.approx(3.80e6, abs=5e3)
    assert count_parameters(PAPER, PAPER.smallest) == 49_916


def paper_rows() -> list[dict[str, str]]:
    text = resources.files("fedfeast.variants").joinpath("caches", "cifar100-56.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("row", paper_rows(), ids=lambda row: row["macs"])
def test_every_cached_row(row: dict[str, str]) -> None:
    architecture = Architecture(*(tuple(json.loads(row[column])) for column in ("d", "e", "w_indices")))
    assert count_macs(PAPER, architecture) == int(row["macs"])
    assert count_convolution_macs(PAPER, architecture) == int(row["conv_macs"])
    assert count_parameters(PAPER, architecture) == int(row["params"])


def random_architecture(space: SearchSpace, *name: str | int) -> Architecture:
    generator = named_generator(0, *name)
    stages = space.num_stages
    return Architecture(
        tuple(generator.choice(space.depths, stages).tolist()),
        tuple(generator.choice(space.expansions, stages).tolist()),
        tuple(generator.integers(0, len(space.widths), stages + 1).tolist()),
    )


@pytest.mark.parametrize("draw", range(6))
@pytest.mark.parametrize(
    "space",
    [
        PAPER,
        replace(PAPER, image_size=64, stem_stride=2, classes=200),
        replace(PAPER, image_size=15, image_channels=1),
    ],
    ids=["paper", "tiny", "odd"],
)
def test_cost_equals_the_network_itself(space: SearchSpace, draw: int) -> None:
    network, architecture = ElasticResNet(space), random_architecture(space, draw)
    shapes = network.shapes(architecture)
    weights = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    images = torch.empty(1, space.image_channels, space.image_size, space.image_size, device="meta")
    with FlopCounterMode(display=False) as counter:
        network.forward(weights, images, architecture, by_batch)
    assert counter.get_total_flops() / 2 == count_macs(space, architecture)
    assert sum(tensor.numel() for tensor in weights.values()) == count_parameters(space, architecture)
