"""Networks that share their first blocks: the same bits as each alone, and every block that several have done once."""

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from tiny import SPACE as TINY_SPACE
from tiny import examples
from torch import Tensor

from fedfeast.data import Normalisation
from fedfeast.data.tasks import CLASSIFICATION
from fedfeast.evaluation import Evaluator, measure_sets, recalibrate
from fedfeast.evaluation.passes.example_totals import BatchLimit, start_totals
from fedfeast.evaluation.passes.folded import FoldedLayers
from fedfeast.evaluation.passes.recalibration import recalibrate_group
from fedfeast.evaluation.passes.shared_prefixes import PrefixGroup, group_alike
from fedfeast.federation import Deployed, OperatingPoint
from fedfeast.networks import Architecture, ElasticResNet
from fedfeast.networks.layers import Weights
from fedfeast.networks.normalisation import ByStatistics
from fedfeast.randomness import named_generator
from fedfeast.routing import LeadingSlices

NORMALISATION = Normalisation((0.4,), (0.3,))
NETWORK = ElasticResNet(replace(TINY_SPACE, depths=(0, 1, 2), channel_divisor=2))  # no two choices round alike
FLAT = NETWORK.initial_weights(named_generator(0, "weights"))


class Slicing:
    """A method of which the tests need that it deploys."""

    def __init__(self, network: ElasticResNet = NETWORK, slices: bool = True) -> None:
        self.network, self.slices = network, slices

    def deploy(self, flat: Tensor, point: OperatingPoint) -> Deployed:
        assert isinstance(point.architecture, Architecture)
        slices = LeadingSlices.of(self.network.layout, self.network.shapes(point.architecture))
        costs = point.macs, point.parameters
        local = slices.gather(flat)
        return Deployed(self.network, point.architecture, slices.layout, local, *costs, is_sliced=self.slices)


METHOD: Any = Slicing()


def points_of(architectures: list[Architecture]) -> list[OperatingPoint]:
    return [OperatingPoint(str(place), NETWORK.macs(one), 0, one) for place, one in enumerate(architectures)]


def some_points(count: int = 24) -> list[OperatingPoint]:
    """Return points of any networks of the space, in no order."""
    every = [
        Architecture(depths, expansions, widths)
        for depths in product((0, 1, 2), repeat=2)
        for expansions in product((0.25, 0.5), repeat=2)
        for widths in product((0, 1), repeat=3)
    ]
    chosen = named_generator(0, "points").permutation(len(every))[:count]
    return points_of([every[place] for place in chosen])


POINTS = some_points()


def groups() -> list[PrefixGroup]:
    return [PrefixGroup.of([METHOD.deploy(FLAT, point) for point in alike]) for alike in group_alike(POINTS)]


class Counting(ByStatistics):
    """Layers that tell which parts they are asked for."""

    def __init__(self, statistics: Any, asked: Counter[str]) -> None:
        super().__init__(statistics)
        self.asked = asked

    def stem(self, weights: Weights, images: Tensor, stride: int) -> Tensor:
        self.asked["stem"] += 1
        return super().stem(weights, images, stride)

    def block(self, weights: Weights, name: str, features: Tensor, stride: int, signed: bool = False) -> Tensor:
        self.asked["block"] += 1
        return super().block(weights, name, features, stride, signed)


def test_outputs_are_those_of_every_network_alone() -> None:
    images = torch.randn(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert sum(len(group.networks) for group in groups()) == len(POINTS)
    assert max(max(group.shared) for group in groups()) > 3, "some go together beyond the first stage"
    for group in groups():
        statistics = [recalibrate(one, examples(40), NORMALISATION) for one in group.networks]
        outputs = list(group.outputs(images, list(map(ByStatistics, statistics))))
        for deployed, own, given in zip(group.networks, statistics, outputs, strict=True):
            assert torch.equal(given, deployed(images, ByStatistics(own)))


def test_every_part_that_several_begin_with_is_done_once() -> None:
    images, asked = torch.randn(4, 1, 8, 8), Counter[str]()
    for group in groups():
        layers = [Counting(recalibrate(one, examples(40), NORMALISATION), asked) for one in group.networks]
        list(group.outputs(images, layers))
    space, stems, beginnings, blocks = NETWORK.space, set[Any](), set[Any](), 0
    for point in POINTS:
        assert isinstance(point.architecture, Architecture)
        before: tuple[Any, ...] = (space.stem_width(point.architecture),)
        stems.add((*before, *list(NETWORK.blocks(point.architecture))[:1]))  # groups are made by the first block
        for block in NETWORK.blocks(point.architecture):
            before, blocks = (*before, block), blocks + 1
            beginnings.add(before)
    assert asked == {"stem": len(stems), "block": len(beginnings)}
    assert len(beginnings) < 0.75 * blocks


@pytest.mark.parametrize("batch_size", [None, 16])
def test_statistics_are_those_of_every_network_alone(batch_size: int | None) -> None:
    held = examples(50)
    for group in groups():
        together = recalibrate_group(group, held, NORMALISATION, batch_size)
        for deployed, given in zip(group.networks, together, strict=True):
            alone = recalibrate(deployed, held, NORMALISATION, batch_size)
            assert given.keys() == alone.keys()
            for name, both in alone.items():
                assert all(torch.equal(one, other) for one, other in zip(given[name], both, strict=True))


def test_folded_layers_fold_what_they_are_asked_for_alone() -> None:
    held, test = examples(50), examples(30, "test")
    for group in groups():
        statistics = recalibrate_group(group, held, NORMALISATION)
        folded, alone = ([FoldedLayers(one, torch.float32) for one in statistics] for _ in range(2))
        given = test, NORMALISATION, CLASSIFICATION, BatchLimit()
        together = start_totals(group, folded, *given)
        for deployed, own, totals in zip(group.networks, alone, together, strict=True):
            (expected,) = start_totals(PrefixGroup.of((deployed,)), (own,), *given)
            assert torch.equal(totals, expected)
        for shared, layers, whole in zip(group.shared, folded, alone, strict=True):
            assert (len(layers._folded) < len(whole._folded)) == (shared > 0)


def test_a_curve_has_the_values_and_the_order_of_its_points() -> None:
    evaluator = Evaluator(examples(50), examples(90, "test"), NORMALISATION)
    told = list[OperatingPoint]()
    measured = evaluator.measure(METHOD, FLAT, POINTS, told.append)
    alone = [evaluator.measure(METHOD, FLAT, (point,)) for point in POINTS]
    assert torch.equal(measured.totals, torch.cat([one.totals for one in alone]))
    assert measured.costs == tuple(one.costs[0] for one in alone)
    assert sorted(told, key=POINTS.index) == POINTS, "every point is told of once"


def test_points_are_told_of_as_their_examples_go_through() -> None:
    alike = points_of(
        [Architecture((1, depth), (0.25, 0.25), (0, 0, width)) for depth in (0, 1, 2) for width in (0, 1)]
    )
    assert len(group_alike(alike)) == 1
    evaluator = Evaluator(examples(50), examples(90, "test"), NORMALISATION, limit=BatchLimit(30))
    rounds, told = list[int](), list[OperatingPoint]()

    class Noting(Evaluator):
        def start_totals(self, group: Any, layers: Any, on_batch: Any = None) -> Any:
            def note(count: int) -> None:
                on_batch(count)
                rounds.append(len(told))

            return super().start_totals(group, layers, note)

    noting = Noting(evaluator.calibration, evaluator.test, NORMALISATION, limit=BatchLimit(30))
    measure_sets({"": noting}, METHOD, FLAT, alike, told.append)
    assert rounds == [3, 5, 6]


def test_networks_that_are_no_slices_of_one_vector_share_nothing() -> None:
    method = Slicing(slices=False)
    for alike in group_alike(POINTS):
        group = PrefixGroup.of([method.deploy(FLAT, point) for point in alike])
        assert not any(group.shared)
        assert not any(group.kept)


def test_networks_of_another_family_are_groups_of_one() -> None:
    others = [OperatingPoint(name, 1, 1, name) for name in "ab"]
    assert group_alike(others) == [[others[0]], [others[1]]]


def test_a_group_without_memory_goes_on_in_smaller_batches() -> None:
    evaluator = Evaluator(examples(50), examples(90, "test"), NORMALISATION)
    (group, *_) = (group for group in groups() if len(group.networks) > 2)
    statistics = evaluator.recalibrate_group(group)
    failures = iter([True, False])

    class Failing(ByStatistics):
        def block(self, *given: Any, **more: Any) -> Tensor:
            if next(failures, False):
                raise torch.cuda.OutOfMemoryError("no memory")
            return super().block(*given, **more)

    wanted = evaluator.start_totals(group, list(map(ByStatistics, statistics)))
    layers = [*map(ByStatistics, statistics[:-1]), Failing(statistics[-1])]
    given = evaluator.start_totals(group, layers)
    assert evaluator.limit.examples == 250
    assert all(torch.equal(one, other) for one, other in zip(given, wanted, strict=True))
