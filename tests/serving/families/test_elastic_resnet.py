"""The elastic ResNet that goes into bundles, against the one that is trained."""

from collections.abc import Callable

from fedfeast.networks import Architecture, ElasticResNet, SearchSpace
from fedfeast.serving.families import elastic_resnet


def test_the_file_computes_what_was_trained(check_family: Callable[..., None]) -> None:
    network = ElasticResNet(SearchSpace(image_size=9, classes=7))
    check_family(elastic_resnet, network, Architecture((1, 0, 2, 0), (0.25, 0.1, 0.22, 0.1), (3, 1, 2, 0, 1)))
