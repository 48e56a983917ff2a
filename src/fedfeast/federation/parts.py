"""What a recipe offers to build a method from."""

from dataclasses import dataclass

from fedfeast.errors import InvalidInput
from fedfeast.networks import ElasticNetwork, ElasticResNet, ResNet
from fedfeast.variants import VariantCache

ANY_NETWORK = (
    "feast",
    "nested",
    "fedsup",
    "efedsup",
    "deepfednas",
    "fedavg",
)  # the methods of the package that train any elastic network


@dataclass(frozen=True)
class Parts:
    """Networks for the data at hand, the cached variants, and how long training will be."""

    elastic: ElasticNetwork
    cache: VariantCache
    resnet: ResNet | None  # of the compared methods; none for a network of one's own
    rounds: int

    def resnet_for(self, method: str) -> ResNet:
        """Return the compared methods' ResNet; refuse the named method where the recipe has a network of its own."""
        if self.resnet is None or not isinstance(self.elastic, ElasticResNet):
            raise InvalidInput(_refusal(method, "trains the package's ResNet"))
        return self.resnet

    def elastic_resnet_for(self, method: str) -> ElasticResNet:
        """Return the elastic ResNet; refuse the named method where the recipe has a network of its own."""
        if not isinstance(self.elastic, ElasticResNet):
            raise InvalidInput(_refusal(method, "draws from the elastic ResNet's space"))
        return self.elastic


def _refusal(method: str, why: str) -> str:
    return (
        f"method.name = {method!r} {why} and cannot train network.builder: choose "
        f"{', '.join(ANY_NETWORK[:-1])} or {ANY_NETWORK[-1]}, or leave network.builder out."
    )
