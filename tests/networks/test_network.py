from fedfeast.networks import ElasticResNet, Network, SearchSpace


def test_the_elastic_resnet_is_a_network() -> None:
    network: Network = ElasticResNet(SearchSpace())
    largest = SearchSpace().largest
    assert sum(map(len, network.shapes(largest).values())) > 0
    assert network.parameters(largest) == network.layout.num_parameters
