"""Envelopes of what clients afford, and what sending them saves."""

import csv
from importlib import resources

import pytest

from fedfeast.networks import Architecture, ElasticResNet, SearchSpace
from fedfeast.population import paper_population
from fedfeast.routing import LeadingSlices, count_traffic, envelope_of
from fedfeast.variants import Variant, read_cache

PAPER = ElasticResNet(SearchSpace())


def test_bounds_are_taken_coordinate_by_coordinate() -> None:
    one = Variant.of(PAPER, Architecture((1, 5, 0, 0), (0.1,) * 4, (3, 0, 0, 2, 0)))
    two = Variant.of(PAPER, Architecture((2, 0, 0, 4), (0.22,) * 4, (0, 1, 0, 0, 9)))
    assert envelope_of([one, two], PAPER) == Architecture((2, 5, 0, 4), (0.25,) * 4, (3, 1, 0, 2, 9))


def test_every_row_of_the_paper_cache_has_its_envelope() -> None:
    cache = read_cache("cifar100-56", PAPER)
    text = resources.files("fedfeast.variants").joinpath("caches", "cifar100-56.csv").read_text()
    for row, variant in zip(csv.DictReader(text.splitlines()), cache, strict=True):
        envelope = envelope_of(cache.affordable(variant.macs), PAPER)
        assert PAPER.parameters(envelope) == int(row["envelope_params"])


@pytest.mark.parametrize(
    ("budget", "millions"), [(25e6, 0.500), (39.9e6, 0.540), (69.7e6, 2.43), (200e6, 9.91), (600e6, 36.35)]
)
def test_envelopes_by_budget(budget: float, millions: float) -> None:
    cache = read_cache("cifar100-56", PAPER)
    envelope = envelope_of(cache.affordable(budget), PAPER)
    assert PAPER.parameters(envelope) / 1e6 == pytest.approx(millions, abs=0.005)


def test_two_clients() -> None:
    traffic = count_traffic([10, 40], 100)
    assert (traffic.mean_payload, traffic.reduction) == (25.0, 4.0)
    assert (traffic.per_client_mean, traffic.per_client_median, traffic.per_client_max) == (6.25, 6.25, 10.0)


def test_the_papers_population_and_cache() -> None:
    network = ElasticResNet(SearchSpace())
    cache = read_cache("cifar100-56", network)
    payloads = []
    for budget in paper_population().budgets_macs:
        envelope = envelope_of(cache.affordable(budget), network)
        payloads.append(LeadingSlices.of(network.layout, network.shapes(envelope)).payload)
    traffic = count_traffic(payloads, network.layout.num_parameters)
    assert traffic.mean_payload / 1e6 == pytest.approx(8.02, abs=0.005)
    assert traffic.reduction == pytest.approx(6.94, abs=0.005)
    assert traffic.per_client_mean == pytest.approx(44.86, abs=0.005)
    assert traffic.per_client_median == pytest.approx(22.94, abs=0.005)
    assert traffic.per_client_max == pytest.approx(111.45, abs=0.005)
