import torch

from fedfeast.federation import Deployed
from fedfeast.networks import ElasticResNet, Layout, SearchSpace
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator


def test_a_deployed_network_holds_its_own_weights_alone() -> None:
    space = SearchSpace(image_size=8, classes=7)
    network = ElasticResNet(space)
    layout = Layout.of(network.shapes(space.smallest))
    flat = torch.from_numpy(named_generator(0).normal(size=layout.size)).float()
    logits = Deployed(network, space.smallest, layout, flat, 1, 1)(torch.zeros(3, 3, 8, 8), by_batch)
    assert logits.shape == (3, 7)
