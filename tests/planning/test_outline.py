import numpy as np
import pytest

from fedfeast.planning.outline import outline
from fedfeast.recipes import load_recipe


def test_clients_are_grouped_by_what_they_afford() -> None:
    built = outline(load_recipe("cifar100-paper"))
    positions = np.concatenate([group.clients for group in built.groups])
    assert sorted(positions.tolist()) == list(range(100))
    for group in built.groups:
        budgets = built.population.budgets_macs[group.clients]
        assert {len(built.cache.affordable(budget)) for budget in budgets} == {group.affordable}
        assert [len(one.architectures) for one in group.assignments] == [group.affordable]


def test_pass_macs_are_smallest_plus_mean_interior_plus_largest() -> None:
    built = outline(load_recipe("cifar100-paper"))
    network = built.method.network
    one, top = built.groups[0], built.groups[-1]
    assert one.pass_macs(built.method) == network.convolution_macs(built.cache[0].architecture)
    macs = [network.convolution_macs(variant.architecture) for variant in built.cache]
    assert top.pass_macs(built.method) == pytest.approx(macs[0] + np.mean(macs[1:-1]) + macs[-1])


def test_a_client_takes_part_in_its_share_of_the_rounds() -> None:
    assert outline(load_recipe("cifar100-paper")).rounds_per_client == 400
    few = outline(load_recipe("digits", {"method.name": "fedavg", "method.max_macs": 1.2e6}))
    assert len(few.participants) < 40
    assert few.rounds_per_client == pytest.approx(60 * 10 / len(few.participants))
