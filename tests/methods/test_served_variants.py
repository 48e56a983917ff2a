from fedfeast.methods.served_variants import cached_points
from fedfeast.networks import ElasticResNet, SearchSpace
from fedfeast.variants import read_cache


def test_one_point_per_variant() -> None:
    cache = read_cache("cifar100-56", ElasticResNet(SearchSpace()))
    points = cached_points(cache)
    assert [point.architecture for point in points] == [variant.architecture for variant in cache]
    assert len({point.name for point in points}) == 56
