import pytest

from fedfeast.methods.served_variants import cached_points, format_macs
from fedfeast.networks import ElasticResNet, SearchSpace
from fedfeast.variants import read_cache


@pytest.mark.parametrize(
    ("macs", "text"),
    [(24_967_328, "24.97M"), (595_791_168, "595.8M"), (128_320, "128.3k"), (2.5e9, "2.5G"), (12, "12")],
)
def test_macs_for_people(macs: float, text: str) -> None:
    assert format_macs(macs) == text


def test_one_point_per_variant() -> None:
    cache = read_cache("cifar100-56", ElasticResNet(SearchSpace()))
    points = cached_points(cache)
    assert [point.architecture for point in points] == [variant.architecture for variant in cache]
    assert len({point.name for point in points}) == 56
