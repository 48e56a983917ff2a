from fedfeast.networks import ElasticResNet, Network, ResNet, SearchSpace


def test_the_elastic_resnet_is_a_network() -> None:
    network: Network = ElasticResNet(SearchSpace())
    largest = SearchSpace().largest
    assert sum(map(len, network.shapes(largest).values())) > 0
    assert network.parameters(largest) == network.layout.num_parameters


def test_the_resnet_is_a_network() -> None:
    network: Network = ResNet(early_exits=True)
    whole = ResNet(early_exits=True).whole
    assert network.shapes(whole) == network.layout.shapes
    assert network.parameters(whole) == network.layout.num_parameters
