import csv
from importlib import resources

import pytest

from fedfeast.networks import Architecture, ElasticResNet, SearchSpace
from fedfeast.routing import envelope_of
from fedfeast.variants import Variant, read_cache

PAPER = ElasticResNet(SearchSpace())


def test_bounds_are_taken_coordinate_by_coordinate() -> None:
    one = Variant.of(PAPER, Architecture((1, 5, 0, 0), (0.1,) * 4, (3, 0, 0, 2, 0)))
    two = Variant.of(PAPER, Architecture((2, 0, 0, 4), (0.22,) * 4, (0, 1, 0, 0, 9)))
    assert envelope_of([one, two], PAPER.space) == Architecture((2, 5, 0, 4), (0.25,) * 4, (3, 1, 0, 2, 9))


def test_every_row_of_the_paper_cache_has_its_envelope() -> None:
    cache = read_cache("cifar100-56", PAPER)
    text = resources.files("fedfeast.variants").joinpath("caches", "cifar100-56.csv").read_text()
    for row, variant in zip(csv.DictReader(text.splitlines()), cache, strict=True):
        envelope = envelope_of(cache.affordable(variant.macs), PAPER.space)
        assert PAPER.parameters(envelope) == int(row["envelope_params"])


@pytest.mark.parametrize(
    ("budget", "millions"), [(25e6, 0.500), (39.9e6, 0.540), (69.7e6, 2.43), (200e6, 9.91), (600e6, 36.35)]
)
def test_envelopes_by_budget(budget: float, millions: float) -> None:
    cache = read_cache("cifar100-56", PAPER)
    envelope = envelope_of(cache.affordable(budget), PAPER.space)
    assert PAPER.parameters(envelope) / 1e6 == pytest.approx(millions, abs=0.005)
