"""What a round is made of: deployed networks, parts of a method, cohorts, the local optimiser, losses."""

import math
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Deployed, LocalSgd, Parts, mixed_cross_entropy, sample_cohort, soft_cross_entropy
from fedfeast.methods import METHODS, ScaleFL
from fedfeast.methods.supernet.federated_nas import FederatedNas
from fedfeast.networks import ElasticResNet, Layout, ResNet, SearchSpace
from fedfeast.networks.ensemble import Ensemble
from fedfeast.networks.nested_resnet import NestedResNet
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_network, build_resnet
from fedfeast.recipes.sections import TrainingSection
from fedfeast.variants import read_cache


def test_a_deployed_network_holds_its_own_weights_alone() -> None:
    space = SearchSpace(image_size=8, classes=7)
    network = ElasticResNet(space)
    layout = Layout.of(network.shapes(space.smallest))
    flat = torch.from_numpy(named_generator(0).normal(size=layout.size)).float()
    logits = Deployed(network, space.smallest, layout, flat, 1, 1)(torch.zeros(3, 3, 8, 8), by_batch)
    assert logits.shape == (3, 7)


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
        network = method.network
        network = network.resnet if isinstance(network, NestedResNet) else network
        network = network.base if isinstance(network, Ensemble) else network
        assert isinstance(network, ResNet)
        assert given.resnet is not None
        is_narrower = name in ("depthfl", "splitmix")
        channels = given.resnet.stage_channels if is_narrower else network.stage_channels
        network = replace(network, stage_channels=channels, early_exits=False, averages_exits=False, exit_blocks=())
        assert replace(network, activation="after") == given.resnet
    if isinstance(method, FederatedNas | ScaleFL):
        assert method.rounds == 123


def test_uniform_without_replacement() -> None:
    counts = np.zeros(10)
    for round_index in range(2000):
        cohort = sample_cohort(range(10), 3, named_generator(0, "cohort", round_index))
        assert len(set(cohort)) == 3
        counts[cohort] += 1
    assert np.abs(counts / 2000 - 0.3).max() < 0.04


def test_only_eligible_clients_and_never_more_than_there_are() -> None:
    assert sample_cohort([4, 7], 10, named_generator(0)) == [4, 7]


def test_the_defaults_are_those_of_a_recipe() -> None:
    training = TrainingSection()
    assert LocalSgd() == LocalSgd(training.weight_decay, training.clip_norm) == LocalSgd(5e-4, 10.0)
    assert LocalSgd() == LocalSgd(
        momentum=training.momentum, learning_rate=training.learning_rate, unreached=training.unreached
    )


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_a_weight_without_gradients_shrinks_as_its_steps_say(momentum: float) -> None:
    sgd = LocalSgd(0.3, momentum=momentum)
    weight = torch.nn.Parameter(torch.tensor([2.0, -3.0], dtype=torch.float64))
    optimiser = torch.optim.SGD([weight], lr=0.2, momentum=momentum, weight_decay=0.3)
    for step in range(6):
        torch.testing.assert_close(
            weight.detach(), sgd.shrinkage(0.2, step) * torch.tensor([2.0, -3.0], dtype=torch.float64)
        )
        weight.grad = torch.zeros_like(weight)
        optimiser.step()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 1.0}, r"momentum = 1.0: give a number from 0 to below 1"),
        ({"momentum": -0.1}, r"momentum = -0.1"),
        ({"learning_rate": 0.0}, r"learning_rate = 0.0: give a positive number"),
        ({"weight_decay": float("inf")}, r"weight_decay = inf"),
        ({"clip_norm": float("nan")}, r"clip_norm = nan: give a positive number, inf for none"),
    ],
)
def test_no_optimiser_can_be_like_that(options: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        LocalSgd(**options)  # type: ignore[arg-type]


def test_it_is_a_frozen_record() -> None:
    with pytest.raises(FrozenInstanceError):
        LocalSgd().clip_norm = 1.0  # type: ignore[misc]


def test_mixed_cross_entropy_on_hand_made_logits() -> None:
    logits = torch.tensor([[math.log(1.0), math.log(3.0)]])
    batch = Batch(torch.empty(1), torch.tensor([0]), torch.tensor([1]), torch.tensor(0.25))
    expected = 0.25 * -math.log(0.25) + 0.75 * -math.log(0.75)
    assert math.isclose(float(mixed_cross_entropy(logits, batch)), expected, rel_tol=1e-6)


def test_soft_cross_entropy_on_hand_made_logits() -> None:
    logits = torch.tensor([[math.log(1.0), math.log(3.0)]])
    expected = -0.5 * math.log(0.25) - 0.5 * math.log(0.75)
    assert math.isclose(float(soft_cross_entropy(logits, torch.tensor([[0.5, 0.5]]))), expected, rel_tol=1e-6)
