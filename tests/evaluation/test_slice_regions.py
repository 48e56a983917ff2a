from dataclasses import replace
from typing import cast, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from own_networks import built_cnn
from tiny import COUNTABLE_SPACE, cache_of
from torch import Tensor, nn

from fedfeast.evaluation.slice_regions import ActivatedSupport, Part, SliceRegions, cut_regions, part_of
from fedfeast.federation import Client
from fedfeast.methods import Feast
from fedfeast.methods.supernet.feast import TrainingRule
from fedfeast.networks import Architecture, ElasticResNet, SearchSpace, Shapes
from fedfeast.networks.built import BuiltNetwork, elastic
from fedfeast.randomness import named_generator
from fedfeast.routing import LeadingSlices, envelope_of
from fedfeast.variants import Variant, VariantCache, choose_members, read_cache

WIDE = {"stem_channels": 6, "stage_channels": (6, 10), "depths": (0, 1, 2), "widths": (0.4, 0.7, 1.0)}
TINY = ElasticResNet(replace(COUNTABLE_SPACE, **WIDE))  # type: ignore[arg-type]
CACHE = cache_of(
    TINY,
    ((0, 0), (0.3, 0.3), (0, 0, 0)),
    ((1, 0), (0.3, 0.3), (0, 1, 0)),
    ((0, 1), (0.3, 0.6), (1, 0, 1)),
    ((1, 0), (0.6, 0.3), (0, 2, 1)),
    ((0, 1), (0.3, 0.3), (2, 1, 1)),
)
REGIONS = cut_regions(TINY, CACHE)
PAPER = ElasticResNet(SearchSpace())
PAPER_CACHE = read_cache("cifar100-56", PAPER)


class FixedChoice:
    """A generator whose every integer is the same."""

    def __init__(self, value: int) -> None:
        self.value = value

    def integers(self, high: int) -> int:
        return self.value


def spread(regions: SliceRegions, values: NDArray[np.float64]) -> torch.Tensor:
    """Return a flat vector of the supernet with each region's value added at its scalars."""
    flat = TINY.layout.zeros(torch.float64)
    views = TINY.layout.views(flat)
    for tensor, bounds, value in zip(regions.tensors, regions.bounds, values, strict=True):
        view = views[regions.tensor_names[tensor]]
        rows, columns = slice(*bounds[:2]), slice(*bounds[2:])
        (view[rows, columns] if view.ndim > 1 else view[rows]).add_(float(value))
    return flat


def activated_scalars(architectures: list[Architecture]) -> torch.Tensor:
    """Return, scalar by scalar, how many of the architectures activate it."""
    flat = TINY.layout.zeros(torch.float64)
    for architecture in architectures:
        LeadingSlices.of(TINY.layout, TINY.shapes(architecture)).increment_(flat, 1.0)
    return flat


def test_regions_tile_every_tensor_once() -> None:
    covered = spread(REGIONS, np.ones(len(REGIONS.tensors)))
    expected = torch.zeros_like(covered)
    LeadingSlices.of(TINY.layout, TINY.layout.shapes).increment_(expected, 1.0)
    assert torch.equal(covered, expected)
    assert REGIONS.num_parameters.sum() == TINY.layout.num_parameters


def test_routing_and_first_activation_agree_with_every_scalar() -> None:
    routed = REGIONS.routed()
    assert not routed[:, 0].any()
    for number in range(1, len(CACHE) + 1):
        prefix = CACHE.variants[:number]
        envelope = activated_scalars([envelope_of(prefix, TINY)])
        assert torch.equal(spread(REGIONS, routed[:, number].astype(float)), envelope)
        trained = activated_scalars([variant.architecture for variant in prefix]) > 0
        reached = spread(REGIONS, (REGIONS.activated_from <= number).astype(float))
        assert torch.equal(reached, trained.double())
        assert (reached < envelope).any()  # routed and never activated: the case is not a trivial one


@pytest.mark.parametrize("rule", get_args(TrainingRule))
def test_multiplicities_count_the_passes_of_the_method_at_every_scalar(rule: TrainingRule) -> None:
    method = Feast(TINY, CACHE, rule)
    multiplicities = REGIONS.multiplicities(rule)
    assert not multiplicities[:, 0].any()
    for number, variant in enumerate(CACHE, start=1):
        assignment = method.assign(Client(0, "one", variant.macs, 1))
        choices = range(max(number - 2, 1))
        total = TINY.layout.zeros(torch.float64)
        for choice in choices:
            passes = method.passes(assignment, 0, cast(np.random.Generator, FixedChoice(choice)))
            total += activated_scalars([cast(Architecture, one.architecture) for one in passes])
        torch.testing.assert_close(spread(REGIONS, multiplicities[:, number]), total / len(choices))


def rows(space: SearchSpace, architectures: list[Architecture]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return extra blocks, places among the expansions, and width indices, a row an architecture."""
    expansions = [[space.expansions.index(one) for one in architecture.expansions] for architecture in architectures]
    depths, widths = ([getattr(one, name) for one in architectures] for name in ("depths", "width_indices"))
    return np.array(depths), np.array(expansions), np.array(widths)


@pytest.mark.parametrize("number", range(len(CACHE) + 1))
def test_never_activated_agrees_with_every_scalar(number: int) -> None:
    support = ActivatedSupport.of(TINY, CACHE.variants[:number])
    trained = activated_scalars([variant.architecture for variant in CACHE.variants[:number]]) > 0
    generator = np.random.default_rng(number)
    space = TINY.space
    architectures = [
        Architecture(
            tuple(generator.choice(space.depths, 2).tolist()),
            tuple(generator.choice(space.expansions, 2).tolist()),
            tuple(generator.integers(0, 3, 3).tolist()),
        )
        for _ in range(30)
    ]
    expected = []
    for architecture in [*architectures, space.largest, space.smallest]:
        own = activated_scalars([architecture]) > 0
        expected.append(float((own & ~trained).sum() / own.sum()))
    shares = support.never_activated_shares(*rows(space, [*architectures, space.largest, space.smallest]))
    np.testing.assert_allclose(shares, expected, atol=1e-6)


def test_a_trained_variant_has_nothing_never_activated() -> None:
    support = ActivatedSupport.of(PAPER, PAPER_CACHE.variants)
    trained = [variant.architecture for variant in PAPER_CACHE]
    *shares, largest = support.never_activated_shares(*rows(PAPER.space, [*trained, PAPER.space.largest]))
    assert not any(shares)
    assert largest == pytest.approx(1 - 14_396_308 / 55_682_916)


def test_the_paper_space() -> None:
    regions = cut_regions(PAPER, PAPER_CACHE)
    sizes, activated = regions.num_parameters, regions.activates.any(axis=1)
    assert sizes.sum() == 55_682_916
    assert sizes[regions.routed_from <= len(PAPER_CACHE)].sum() == 36_349_684
    assert sizes[activated].sum() == 14_396_308
    is_norm = np.array(["norm" in name for name in regions.tensor_names])[regions.tensors]
    assert sizes[activated & ~is_norm].sum() == 14_362_724
    for number, variant in enumerate(PAPER_CACHE):
        assert sizes[regions.activates[:, number]].sum() == variant.parameters


def test_parts() -> None:
    assert part_of("stem.norm.scale") == Part("stem", None)
    assert part_of("stage2.block10.conv1") == Part("stage2", 10)
    assert part_of("head.bias") == Part("head", None)


def test_regions_of_a_network_of_one_s_own_are_those_of_its_positions() -> None:
    network = built_cnn()
    cache = choose_members(network, 5, named_generator(0))
    regions = cut_regions(network, cache)
    assert int(regions.num_parameters.sum()) == network.layout.num_parameters

    def positions(shapes: Shapes) -> set[int]:
        return set(LeadingSlices.of(network.layout, shapes).index().tolist())

    for number, variant in enumerate(cache, start=1):
        envelope = positions(network.shapes(envelope_of(cache.variants[:number], network)))
        assert int(regions.num_parameters[regions.routed_from <= number].sum()) == len(envelope)
        activated = positions(network.shapes(variant.architecture))
        assert int(regions.num_parameters[regions.activates[:, number - 1]].sum()) == len(activated)
    assert part_of("blocks.1.2.weight") == Part("blocks", 1)
    assert part_of("scale") == Part("scale", None)


class Boxes(nn.Module):
    """A tensor of which three axes change, and one without axes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.box, self.scale = nn.Parameter(torch.zeros(size, size + 1, size + 2)), nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.scale + self.box.sum()


def test_every_axis_of_a_tensor_may_change() -> None:
    network = BuiltNetwork(elastic(size=[1, 2, 4])(lambda size: Boxes(size)), {}, (3,))
    variants = [Variant(one, position, 1) for position, one in enumerate(network.builder.members())]
    regions = cut_regions(network, VariantCache.of(variants))
    sizes = [int(regions.num_parameters[regions.activates[:, number]].sum()) for number in range(3)]
    assert sizes == [1 * 2 * 3 + 1, 2 * 3 * 4 + 1, 4 * 5 * 6 + 1]
    assert int(regions.num_parameters.sum()) == sizes[-1]
