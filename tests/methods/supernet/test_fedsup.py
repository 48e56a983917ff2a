from typing import Any

import pytest
import torch
from tiny import TINY

from fedfeast.data import Batch
from fedfeast.data.tasks import CLASSIFICATION
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client
from fedfeast.methods import EFedSup, FedSup
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe


def tiny(**options: Any) -> FedSup:
    settings = {f"method.{name}": value for name, value in options.items()}
    method = outline(load_recipe("digits", {**TINY, "method.name": "fedsup", **settings})).method
    assert isinstance(method, FedSup)
    return method


def assigned(method: FedSup, budget: float) -> Assignment:
    client = Client(0, "a", budget, 7)
    return method.plan_round({}, torch.empty(0), [client], 0, named_generator(0))[0][0]


def test_the_largest_comes_first_and_the_smallest_last() -> None:
    method = tiny(random_networks=2)
    everything = assigned(method, 1e9)
    smallest, *interior, largest = everything.architectures
    passes = method.passes(everything, 0, named_generator(0))
    assert [one.role for one in passes] == ["teacher", "student", "student", "student"]
    assert (passes[0].architecture, passes[-1].architecture) == (largest, smallest)
    assert {one.architecture for one in passes[1:-1]} <= set(interior)
    assert sum(method.expected_passes(everything).values()) == pytest.approx(4.0)
    alone = assigned(method, method.cache[0].macs)
    assert [one.role for one in method.passes(alone, 0, named_generator(0))] == ["supervised"]


def test_students_learn_from_the_largest_alone() -> None:
    method = tiny()
    logits, teacher = torch.randn(4, 3), torch.randn(4, 3)
    labels = torch.tensor([0, 1, 2, 0])
    batch = Batch(torch.zeros(4, 1, 2, 2), labels, labels, torch.tensor(1.0))
    _, told = method.loss("teacher", (teacher,), batch, None, {})
    loss, carried = method.loss("student", (logits,), batch, told, {})
    torch.testing.assert_close(loss, -(teacher.softmax(1) * logits.log_softmax(1)).sum(1).mean())
    assert carried is told
    assert batch.task is CLASSIFICATION


def test_without_constraint_everybody_trains_everything() -> None:
    method = tiny(preset="released")
    poor = assigned(method, 1.0)
    assert method.trains(1.0)
    assert not method.keeps_budgets
    assert poor.architectures == tuple(one.architecture for one in method.cache)
    assert (poor.weight, poor.client.budget_macs) == (1.0, 1.0)
    assert not tiny().trains(1.0)
    with pytest.raises(InvalidInput, match=r"method.random_networks = -1"):
        tiny(random_networks=-1)


def test_a_client_of_efedsup_is_sent_one_network_of_about_its_size() -> None:
    method = outline(load_recipe("cifar100-paper", {"method.name": "efedsup"})).method
    assert isinstance(method, EFedSup)
    client = Client(0, "a", 200e6, 10)
    costs, payloads = set(), set()
    for round_index in range(30):
        (one,), _ = method.plan_round({}, torch.empty(0), [client], round_index, named_generator(round_index))
        (architecture,) = one.architectures
        costs.add(method.network.macs(architecture))
        payloads.add(one.slice_map.payload == method.network.parameters(architecture))
    assert len(costs) > 3
    assert max(costs) <= 200e6
    assert min(costs) >= 0.75 * method.cache.affordable(200e6)[-1].macs
    assert payloads == {True}
    with pytest.raises(InvalidInput, match=r"method.least_share = 2"):
        outline(load_recipe("cifar100-paper", {"method.name": "efedsup", "method.least_share": 2.0}))
