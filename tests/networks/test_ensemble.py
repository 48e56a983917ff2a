from dataclasses import replace

import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.networks import ResNet
from fedfeast.networks.ensemble import Bases, Ensemble
from fedfeast.networks.normalisation import by_batch
from fedfeast.randomness import named_generator

BASE = ResNet((4, 6), (1, 1), (1, 2), image_size=8, image_channels=1, classes=3, activation="before")
NETWORK = Ensemble(BASE, 3)
IMAGES = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def test_what_is_served_is_the_mean_of_networks_that_share_nothing() -> None:
    flat = NETWORK.initial_weights(named_generator(0))
    weights = NETWORK.layout.views(flat)
    single = [NETWORK.forward(weights, IMAGES, Bases((number,)), by_batch)[-1] for number in range(3)]
    (mean,) = NETWORK.forward(weights, IMAGES, Bases((0, 2)), by_batch)
    torch.testing.assert_close(mean, (single[0] + single[2]) / 2)
    assert not torch.equal(single[0], single[1])
    assert NETWORK.layout.num_parameters == 3 * BASE.parameters(BASE.whole)
    assert NETWORK.macs(Bases((0, 2))) == 2 * BASE.macs(BASE.whole)


def test_weights_behind_the_stem_begin_as_those_of_the_network_that_was_split() -> None:
    plain, rescaled = (Ensemble(BASE, 3, width).initial_weights(named_generator(0)) for width in (1.0, 0.25))
    for (name, one), other in zip(
        NETWORK.layout.views(plain).items(), NETWORK.layout.views(rescaled).values(), strict=True
    ):
        factor = 1.0 if name.endswith((".scale", ".shift", "stem.conv")) else 0.5
        torch.testing.assert_close(other, factor * one)


@pytest.mark.parametrize("numbers", [(), (1, 0), (0, 0), (-1,)])
def test_bases_that_are_none_are_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="list numbers from 0 on"):
        Bases(numbers)
    with pytest.raises(InvalidInput, match="it has 3 networks"):
        replace(NETWORK).shapes(Bases((3,)))
