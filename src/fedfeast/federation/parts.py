"""What a recipe offers to build a method from."""

from dataclasses import dataclass

from fedfeast.networks import ElasticResNet, ResNet
from fedfeast.variants import VariantCache


@dataclass(frozen=True)
class Parts:
    """Networks for the data at hand, the cached variants, and how long training will be."""

    elastic: ElasticResNet
    cache: VariantCache
    resnet: ResNet
    rounds: int
