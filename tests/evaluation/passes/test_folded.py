"""Folded layers against plain ones by the same statistics; the passes after a convolution against plain operations."""

import pytest
import torch
from tiny import SPACE, TORN_SPACE, deployed, examples
from torch import Tensor

from fedfeast.data import Normalisation, normalise
from fedfeast.evaluation import recalibrate
from fedfeast.evaluation.passes.folded import FoldedLayers, Rectify, fold, is_exact, layers_by, rectify_
from fedfeast.evaluation.passes.rectifying import ELEMENTS, rectify_in_one_pass_
from fedfeast.federation import Deployed
from fedfeast.networks import Branch, ElasticResNet, Layout, SearchSpace
from fedfeast.networks.normalisation import ByStatistics, Statistics
from fedfeast.randomness import named_generator

NORMALISATION = Normalisation((0.4,), (0.3,))
IMAGES = normalise(examples(12).inputs, NORMALISATION)


def lively(space: SearchSpace = TORN_SPACE, branch: Branch = "rectified") -> Deployed:
    """Return a network with norms that do something; the channels of the torn one come in no fours and eights."""
    network = ElasticResNet(space, branch)
    layout = Layout.of(network.shapes(space.largest))
    flat = torch.empty(layout.size)
    drawn, generator = network.layout.views(network.initial_weights(named_generator(0))), named_generator(0, "norms")
    for name, view in layout.views(flat).items():
        view.copy_(drawn[name])
        if "norm" in name:
            view.add_(torch.from_numpy(generator.uniform(-0.5, 0.5, view.shape)))
    return Deployed(network, space.largest, layout, flat, 1, 1)


def statistics_of(network: Deployed) -> Statistics:
    return recalibrate(network, examples(250), NORMALISATION)


@pytest.mark.parametrize("rectify", [rectify_, rectify_in_one_pass_])
@pytest.mark.parametrize(("space", "branch"), [(SPACE, "rectified"), (TORN_SPACE, "rectified"), (TORN_SPACE, "signed")])
def test_folded_layers_give_what_the_statistics_give(space: SearchSpace, branch: Branch, rectify: Rectify) -> None:
    network = lively(space, branch)
    statistics = statistics_of(network)
    wanted = network(IMAGES, ByStatistics(statistics))
    given = network(IMAGES, FoldedLayers(statistics, torch.float32, rectify))
    assert float(wanted.std(dim=0).min()) > 0.01, "examples must tell the difference"
    torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)


def test_half_precision_is_near_and_stays_inside_the_layers() -> None:
    network = lively()
    statistics = statistics_of(network)
    layers = FoldedLayers(statistics, torch.float16, rectify_in_one_pass_)
    wanted, given = network(IMAGES, ByStatistics(statistics)), network(IMAGES, layers)
    assert given.dtype == torch.float32
    torch.testing.assert_close(given, wanted, rtol=0.01, atol=0.01)
    assert not torch.equal(given, wanted)
    assert not is_exact(layers)


def test_a_filter_of_tiny_weights_keeps_its_precision() -> None:
    weight = torch.from_numpy(named_generator(0).normal(0, 1e-7, (4, 8, 3, 3))).float()
    one, zero = torch.ones(4), torch.zeros(4)
    folded, _ = fold(weight * 1e4, one, zero, zero, torch.full((4,), 1e-3), torch.float16)
    assert folded.is_contiguous(memory_format=torch.channels_last)
    tiny, shift = fold(weight, 1e4 * one, 3 * one, 2 * one, torch.full((4,), 1e-3), torch.float16)
    torch.testing.assert_close(tiny, folded, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(shift, torch.full((4,), 3 - 2e4 / (1e-3 + 1e-5) ** 0.5))


def test_what_is_folded_is_folded_once() -> None:
    network = deployed()
    layers = FoldedLayers(statistics_of(network), torch.float32)
    first = network(IMAGES, layers)
    network.flat.zero_()  # the head's views too
    assert float(network(IMAGES, layers).abs().max()) == 0
    assert float(first.abs().max()) > 0


def features(channels: int, dtype: torch.dtype, name: str) -> Tensor:
    """Return more features than one program takes, their channels together."""
    values = torch.from_numpy(named_generator(0, name).normal(0, 1, (3, channels, 9, 29)))
    assert values.numel() > ELEMENTS
    return values.to(dtype, memory_format=torch.channels_last)


@pytest.mark.parametrize("channels", [5, 12, 24])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_one_pass_rectifies_shifts_and_adds(channels: int, dtype: torch.dtype) -> None:
    one, two = features(channels, dtype, "one"), features(channels, dtype, "two")
    shift, other = torch.linspace(-1, 1, channels), torch.linspace(0.5, -2, channels)
    tolerance = 2e-3 if dtype == torch.float16 else 1e-6
    for added, added_shift in ((None, None), (two, None), (two, other)):
        wanted = (one.float() + shift[:, None, None]).relu()
        if added is not None:
            extra = 0 if added_shift is None else added_shift[:, None, None]
            wanted = (wanted + added.float() + extra).relu()
        for rectify in (rectify_, rectify_in_one_pass_):
            changed = one.clone()
            given = rectify(changed, shift, added, added_shift)
            assert given.data_ptr() == changed.data_ptr(), "in place"
            assert given.dtype == dtype
            torch.testing.assert_close(given.float(), wanted, rtol=tolerance, atol=tolerance)
            if added is not None:
                given = rectify(one.clone(), shift, added, added_shift, signed=True)
                summed = (one.float() + shift[:, None, None] + added.float() + extra).relu()
                torch.testing.assert_close(given.float(), summed, rtol=tolerance, atol=tolerance)
    assert torch.equal(two, features(channels, dtype, "two")), "what is added stays"


@pytest.mark.parametrize("rectify", [rectify_, rectify_in_one_pass_])
def test_what_is_no_number_stays_none(rectify: Rectify) -> None:
    broken = features(8, torch.float16, "one")
    broken[0, :, 0, 0], broken[1, :, 0, 0] = torch.nan, torch.inf
    given = rectify(broken.clone(), torch.zeros(8), broken.clone(), None)
    assert bool(given[0, :, 0, 0].isnan().all())
    assert bool(given[1, :, 0, 0].isinf().all())
    assert int((~given.isfinite()).sum()) == 16


def test_a_cpu_measures_with_plain_layers() -> None:
    network = deployed()
    layers = layers_by(network, statistics_of(network))
    assert type(layers) is ByStatistics
    assert is_exact(layers)
    assert is_exact(FoldedLayers({}, torch.float32))
