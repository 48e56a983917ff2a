"""One file a paper; a new method is one file and one line here."""

from collections.abc import Callable, Mapping
from typing import Any

from fedfeast.federation import Method
from fedfeast.methods.feast import Feast as Feast
from fedfeast.methods.fedavg import FedAvg as FedAvg
from fedfeast.networks import ElasticResNet
from fedfeast.variants import VariantCache

METHODS: dict[str, type[Method]] = {"feast": Feast, "fedavg": FedAvg}


def build_method(name: str, network: ElasticResNet, cache: VariantCache, options: Mapping[str, Any]) -> Method:
    """Return the named method with its hyper-parameters."""
    method: Callable[..., Method] = METHODS[name]
    return method(network=network, cache=cache, **options)
