import pytest

from fedfeast.networks import ElasticResNet, SearchSpace
from fedfeast.population import paper_population
from fedfeast.routing import LeadingSlices, count_traffic, envelope_of
from fedfeast.variants import read_cache


def test_two_clients() -> None:
    traffic = count_traffic([10, 40], 100)
    assert (traffic.mean_payload, traffic.reduction) == (25.0, 4.0)
    assert (traffic.per_client_mean, traffic.per_client_median, traffic.per_client_max) == (6.25, 6.25, 10.0)


def test_the_papers_population_and_cache() -> None:
    network = ElasticResNet(SearchSpace())
    cache = read_cache("cifar100-56", network)
    payloads = []
    for budget in paper_population().budgets_macs:
        envelope = envelope_of(cache.affordable(budget), network.space)
        payloads.append(LeadingSlices.of(network.layout, network.shapes(envelope)).payload)
    traffic = count_traffic(payloads, network.layout.num_parameters)
    assert traffic.mean_payload / 1e6 == pytest.approx(8.02, abs=0.005)
    assert traffic.reduction == pytest.approx(6.94, abs=0.005)
    assert traffic.per_client_mean == pytest.approx(44.86, abs=0.005)
    assert traffic.per_client_median == pytest.approx(22.94, abs=0.005)
    assert traffic.per_client_max == pytest.approx(111.45, abs=0.005)
