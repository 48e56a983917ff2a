from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pytest
import torch

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Parts, Pass, mixed_cross_entropy
from fedfeast.methods.tiers import Tier, TieredMethod, Weighting, narrowed
from fedfeast.networks import Level, ResNet
from fedfeast.randomness import named_generator

NETWORK = ResNet((4, 8), (1, 1), (1, 2), image_size=8, image_channels=1, classes=3)
HALF, WHOLE = Level((2, 4), (2,)), Level((4, 8), (2,))


@dataclass(frozen=True)
class Widths(TieredMethod):
    """Nothing but levels of several widths."""

    network: ResNet
    widths: tuple[float, ...] = (1.0, 0.25, 0.5)
    weighting: Weighting = "count"

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        return cls(parts.resnet_for("mine"), **options)

    def levels_in_order(self) -> Sequence[Tier]:
        return narrowed(self.network, self.widths)


@dataclass(frozen=True)
class TwoHeads(Widths):
    """Trains two exits and serves one."""

    def levels_in_order(self) -> Sequence[Tier]:
        return [Tier(Level((4, 8), (1, 2)), WHOLE), Tier(Level((2,), (1,)), Level((2,), (1,)))]


METHOD = Widths(NETWORK)
MACS = [NETWORK.macs(Level(channels, (2,))) for channels in ((1, 2), (2, 4), (4, 8))]


def plan(method: TieredMethod, *budgets: float) -> list[Assignment]:
    cohort = [Client(index, f"client {index}", budget, 7 + index) for index, budget in enumerate(budgets)]
    return method.plan_round({}, torch.zeros(method.network.layout.size), cohort, 0, named_generator(0))[0]


def test_levels_are_served_least_macs_first_however_they_were_named() -> None:
    points = METHOD.operating_points()
    assert [point.macs for point in points] == MACS
    assert [point.architecture for point in points] == [Level((1, 2), (2,)), HALF, WHOLE]
    assert [point.parameters for point in points] == [NETWORK.parameters(tier.served) for tier in METHOD.tiers]
    assert METHOD.trained_architectures() == tuple(point.architecture for point in points)


@pytest.mark.parametrize(
    ("budget", "levels"),
    [
        (0.0, 0),
        (MACS[0] - 1, 0),
        (MACS[0] - 0.5, 0),
        (MACS[0], 1),
        (MACS[1] - 1, 1),
        (MACS[1], 2),
        (MACS[2] - 1, 2),
        (MACS[2], 3),
        (1e12, 3),
    ],
)
def test_a_level_is_affordable_from_its_own_macs_on(budget: float, levels: int) -> None:
    assert METHOD.affordable(budget) == METHOD.tiers[:levels]
    assert METHOD.trains(budget) == (levels > 0)


def test_a_client_is_sent_and_trains_the_largest_level_it_affords() -> None:
    poor, rich, as_poor = plan(METHOD, MACS[1] + 1, 1e12, MACS[1])
    assert (poor.architectures, rich.architectures) == ((HALF,), (WHOLE,))
    assert poor.slice_map.is_leading
    assert poor.slice_map.layout.shapes == NETWORK.shapes(HALF)
    assert poor.slice_map.payload == NETWORK.parameters(HALF)
    assert poor.slice_map is as_poor.slice_map, "one map per level"
    assert METHOD.passes(poor, 0, named_generator(0)) == [Pass(HALF, "supervised")]
    assert METHOD.expected_passes(rich) == {WHOLE: 1.0}
    assert poor.constants == {}


def test_an_answer_weighs_one_or_its_clients_examples() -> None:
    assert [one.weight for one in plan(METHOD, 1e12, 1e12)] == [1.0, 1.0]
    assert [one.weight for one in plan(Widths(NETWORK, weighting="samples"), 1e12, 1e12)] == [7.0, 8.0]


def test_a_level_may_be_trained_otherwise_than_it_is_served() -> None:
    method = TwoHeads(ResNet((4, 8), (1, 1), (1, 2), image_size=8, image_channels=1, classes=3, early_exits=True))
    assert [point.architecture for point in method.operating_points()] == [Level((2,), (1,)), WHOLE]
    assert method.trained_architectures() == (Level((2,), (1,)), Level((4, 8), (1, 2)))
    served = method.network.macs(WHOLE)
    assert method.network.macs(Level((4, 8), (1, 2))) > served
    (assignment,) = plan(method, served)
    assert assignment.architectures == (Level((4, 8), (1, 2)),)
    assert assignment.slice_map.payload == method.network.layout.num_parameters


def test_the_loss_is_the_last_exits_cross_entropy() -> None:
    batch = Batch(torch.empty(1), torch.tensor([0, 2]), torch.tensor([1, 1]), torch.tensor(0.25))
    first, last = torch.zeros(2, 3), torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 1.0]])
    loss, carried = METHOD.loss("supervised", (first, last), batch, None, {})
    torch.testing.assert_close(loss, mixed_cross_entropy(last, batch))
    assert carried is None


def test_channels_are_rounded_up_from_what_a_width_means() -> None:
    odd = ResNet((25, 10), (1, 1), (1, 2), image_size=8)
    assert 0.28 * 25 > 7, "a float's product lies a little above"
    assert [tier.trained.channels for tier in narrowed(odd, (0.28, 0.3, 1.0))] == [(7, 3), (8, 3), (25, 10)]
    assert [tier.served.channels for tier in narrowed(NETWORK, (0.01,))] == [(1, 1)]


@pytest.mark.parametrize("widths", [(), (0.0,), (1.0, -0.5), (0.5, 1.001), (float("nan"),), (0.5, float("nan"))])
def test_widths_out_of_range_are_refused(widths: tuple[float, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"method.widths = \[.*\]: give shares of the channels, above 0 and up to 1"):
        narrowed(NETWORK, widths)


def test_two_levels_of_the_same_cost_are_refused() -> None:
    with pytest.raises(InvalidInput, match=rf"two levels cost the same .*{MACS[1]}.*{MACS[1]}.*leave one of them out"):
        Widths(NETWORK, (0.5, 0.4, 1.0)).operating_points()
