from dataclasses import FrozenInstanceError, replace

import pytest

from fedfeast.federation import Parts
from fedfeast.methods import METHODS, ScaleFL
from fedfeast.methods.federated_nas import FederatedNas
from fedfeast.networks import ElasticResNet, ResNet
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_network, build_resnet
from fedfeast.variants import read_cache


def parts() -> Parts:
    recipe = load_recipe("digits")
    network = build_network(recipe)
    return Parts(network, read_cache(recipe.variants.cache, network), build_resnet(recipe), rounds=123)


def test_they_are_a_frozen_record() -> None:
    with pytest.raises(FrozenInstanceError):
        parts().rounds = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_built_from_them_on_the_network_of_its_kind(name: str) -> None:
    given = parts()
    method = METHODS[name].build(given)
    if isinstance(method.network, ElasticResNet):
        assert method.network == given.elastic
    else:
        assert isinstance(method.network, ResNet)
        assert replace(method.network, activation="after", early_exits=False) == given.resnet
    if isinstance(method, FederatedNas | ScaleFL):
        assert method.rounds == 123
