"""Local training: every client its largest affordable network, and nothing else."""

import torch
from tiny import CACHE, NETWORK

from fedfeast.federation import Client
from fedfeast.methods import METHODS
from fedfeast.methods.controls.local import LocalTraining
from fedfeast.randomness import named_generator


def test_a_client_trains_the_largest_network_it_affords() -> None:
    method = LocalTraining(NETWORK, CACHE)
    cohort = [Client(0, "", CACHE[1].price, 7), Client(1, "", 1e12, 5)]
    poor, rich = method.plan_round({}, torch.empty(0), cohort, 0, named_generator(0))[0]
    assert poor.architectures == (CACHE[1].architecture,)
    assert rich.architectures == (CACHE[-1].architecture,)
    assert poor.slice_map.payload == CACHE[1].parameters
    point = method.point_of(CACHE[1].price)
    assert point is not None
    assert point.architecture == CACHE[1].architecture
    assert method.point_of(CACHE[0].price - 1) is None


def test_it_is_no_method_of_a_recipe() -> None:
    assert LocalTraining not in METHODS.values()
