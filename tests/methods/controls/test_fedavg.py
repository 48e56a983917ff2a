"""FedAvg: one network, for those who afford it."""

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.methods import FedAvg
from fedfeast.networks import ElasticResNet, SearchSpace
from fedfeast.variants import read_cache

NETWORK = ElasticResNet(SearchSpace())
CACHE = read_cache("cifar100-56", NETWORK)


def test_without_a_limit_the_smallest_variant_serves_everybody() -> None:
    assert FedAvg(NETWORK, CACHE).variant == CACHE[0]


def test_with_a_limit_only_those_who_afford_the_variant_train() -> None:
    method = FedAvg(NETWORK, CACHE, max_macs=60e6)
    assert method.variant == CACHE[3]
    assert method.trains(CACHE[3].macs)
    assert not method.trains(CACHE[3].macs - 1)
    assert [point.macs for point in method.operating_points()] == [CACHE[3].macs]


def test_a_limit_below_the_smallest_variant_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"method.max_macs = 1000 .* at least 24967328"):
        FedAvg(NETWORK, CACHE, max_macs=1e3).operating_points()
