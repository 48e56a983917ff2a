from typing import Any

import pytest
import torch
from tiny import TINY

from fedfeast.federation import expected_holders
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import assemble

METHODS: dict[str, dict[str, Any]] = {
    "feast": {"method.progressive": 0.5},
    "fedavg": {},
    "fedrolex": {},
    "fiarse": {},
    "fjord": {},
    "heterofl": {},
    "scalefl": {},
}


@pytest.mark.parametrize("name", METHODS)
def test_they_are_those_of_all_clients_one_by_one(name: str) -> None:
    settings = {**TINY, "population.num_clients": 12, "population.below_smallest": "exclude"}
    built = assemble(load_recipe("digits", {**settings, "method.name": name, **METHODS[name]}))
    flat, state = built.initial_weights(), built.method.initial_state()
    clients = [built.clients[index] for index in built.participants]
    for round_index in (1, 55):
        planned, _ = built.method.plan_round(state, flat, clients, round_index, named_generator(0))
        wanted = torch.zeros(flat.numel(), dtype=torch.float64)
        for assignment in planned:
            wanted[assignment.slice_map.index().long()] += 0.25
        holders = expected_holders(built.method, state, flat, clients, 0.25, round_index)
        torch.testing.assert_close(holders, wanted)
        assert holders.max() == pytest.approx(0.25 * len(clients))
