"""What both networks offer, and the block they are made of."""

import torch
import torch.nn.functional as F

from fedfeast.networks import ElasticResNet, Network, ResNet, SearchSpace
from fedfeast.networks.normalisation import by_batch


def test_the_elastic_resnet_is_a_network() -> None:
    network: Network = ElasticResNet(SearchSpace())
    largest = SearchSpace().largest
    assert sum(map(len, network.shapes(largest).values())) > 0
    assert network.parameters(largest) == network.layout.num_parameters


def test_the_resnet_is_a_network() -> None:
    network: Network = ResNet(early_exits=True)
    whole = ResNet(early_exits=True).whole
    assert network.shapes(whole) == network.layout.shapes
    assert network.parameters(whole) == network.layout.num_parameters


def weights_of(incoming: int, middle: int, width: int, projected: bool) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {"b.conv1": (middle, incoming, 3, 3), "b.conv2": (width, middle, 3, 3)}
    if projected:
        shapes["b.shortcut"] = (width, incoming, 1, 1)
    weights = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    for name, channels in (("norm1", middle), ("norm2", width), ("shortcut_norm", width)):
        weights[f"b.{name}.scale"] = torch.ones(channels)
        weights[f"b.{name}.shift"] = torch.zeros(channels)
    return weights


def test_a_block_rectifies_its_branch_before_the_addition() -> None:
    features = torch.randn(4, 8, 4, 4, generator=torch.Generator().manual_seed(1))
    weights = weights_of(8, 4, 8, projected=False)
    out = by_batch.block(weights, "b", features, stride=1)
    # Where the shortcut is positive the branch can only add to it.
    assert bool((out >= F.relu(features)).all())
    torch.testing.assert_close(out[out > 0].min() > 0, torch.tensor(True))


def test_a_projected_block_pools_its_shortcut_up_to_odd_sizes() -> None:
    features = torch.randn(4, 8, 5, 5, generator=torch.Generator().manual_seed(1))
    assert by_batch.block(weights_of(8, 4, 16, projected=True), "b", features, stride=2).shape == (4, 16, 3, 3)
