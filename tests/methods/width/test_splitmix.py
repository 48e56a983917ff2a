import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.federation import Client
from fedfeast.methods import SplitMix
from fedfeast.networks.ensemble import Bases
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe


def paper(**options: object) -> SplitMix:
    settings = {f"method.{name}": value for name, value in options.items()}
    method = outline(load_recipe("cifar100-paper", {"method.name": "splitmix", **settings})).method
    assert isinstance(method, SplitMix)
    return method


def test_eight_bases_of_an_eighth_of_the_channels() -> None:
    points = paper().operating_points()
    assert [point.macs for point in points] == [number * 8_878_336 for number in range(1, 9)]
    assert points[0].parameters == 182_028


def test_every_base_has_its_turn_and_a_client_holds_as_many_as_it_affords() -> None:
    method = paper()
    budgets = (8.9e6, 27e6, 1e9)
    cohort = [Client(index, str(index), budget, 10) for index, budget in enumerate(budgets)]
    state, firsts = method.initial_state(), []
    for round_index in range(8):
        planned, state = method.plan_round(state, torch.empty(0), cohort, round_index, named_generator(round_index))
        assert [len(one.architectures) for one in planned] == [1, 3, 8]
        assert [method.served_macs(one) <= one.client.budget_macs for one in planned] == [True] * 3
        firsts.append(planned[0].architectures[0])
        held = planned[1].architectures
        assert len(set(held)) == 3
    # Three clients take three of every turn of eight, so that in eight rounds all had their turn three times.
    assert len(state["waiting"]) == 0
    assert len(set(firsts)) > 1
    turns = [method.plan_round({"waiting": torch.tensor([5])}, torch.empty(0), cohort[:1], 0, named_generator(0))[0][0]]
    assert turns[0].architectures == (Bases((5,)),)


def test_a_client_is_sent_the_bases_it_trains_alone() -> None:
    method = paper()
    client = Client(0, "a", 20e6, 10)
    (assignment,), _ = method.plan_round(method.initial_state(), torch.empty(0), [client], 0, named_generator(0))
    assert assignment.slice_map.payload == 2 * 182_028
    assert method.expected_passes(assignment) == dict.fromkeys(assignment.architectures, 1.0)


@pytest.mark.parametrize("options", [{"width": 0.0}, {"bases": 0}, {"bases": 257}, {"width": 1.5}])
def test_bases_that_cannot_be_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=r"and 1 to 256 base networks"):
        paper(**options)
