import numpy as np
import pytest

from fedfeast.runs import load_recipe
from fedfeast.runs.outline import outline


def test_levels_group_the_clients_by_what_they_afford() -> None:
    built = outline(load_recipe("cifar100-paper"))
    positions = np.concatenate([level.clients for level in built.levels])
    assert sorted(positions.tolist()) == list(range(100))
    for level in built.levels:
        budgets = built.population.budgets_macs[level.clients]
        assert {len(built.cache.affordable(budget)) for budget in budgets} == {level.affordable}
        assert [len(one.architectures) for one in level.assignments] == [level.affordable]


def test_pass_macs_are_smallest_plus_mean_interior_plus_largest() -> None:
    built = outline(load_recipe("cifar100-paper"))
    network = built.method.network
    one, top = built.levels[0], built.levels[-1]
    assert one.pass_macs(built.method) == network.convolution_macs(built.cache[0].architecture)
    macs = [network.convolution_macs(variant.architecture) for variant in built.cache]
    assert top.pass_macs(built.method) == pytest.approx(macs[0] + np.mean(macs[1:-1]) + macs[-1])


def test_a_client_takes_part_in_its_share_of_the_rounds() -> None:
    assert outline(load_recipe("cifar100-paper")).rounds_per_client == 400
    few = outline(load_recipe("digits", {"method.name": "fedavg", "method.max_macs": 1.2e6}))
    assert few.participants < 40
    assert few.rounds_per_client == pytest.approx(60 * 10 / few.participants)
