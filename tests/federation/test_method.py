"""The smallest method there is, on the interface alone."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.federation import (
    Accumulator,
    Assignment,
    Client,
    Constants,
    Method,
    OperatingPoint,
    Parts,
    Pass,
    State,
    mixed_cross_entropy,
)
from fedfeast.networks import ElasticResNet, SearchSpace
from fedfeast.randomness import named_generator
from fedfeast.routing import SliceMap

NETWORK = ElasticResNet(SearchSpace(image_size=8))
SMALLEST = NETWORK.space.smallest


@dataclass(frozen=True)
class Counting(Method):
    """Sends the smallest network and counts its rounds."""

    network: ElasticResNet

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        return cls(parts.elastic)

    def initial_state(self) -> State:
        return {"rounds": torch.zeros(1)}

    def trains(self, budget_macs: float) -> bool:
        return True

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        slices = SliceMap.leading(self.network.layout, self.network.shapes(SMALLEST))
        return [Assignment(client, slices, (SMALLEST,), 1.0) for client in cohort], {"rounds": state["rounds"] + 1}

    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        return [Pass(SMALLEST, "supervised")]

    def expected_passes(self, assignment: Assignment) -> dict[Hashable, float]:
        return {SMALLEST: 1.0}

    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor | None]:
        return mixed_cross_entropy(outputs[-1], batch), None

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        return (OperatingPoint("least", self.network.macs(SMALLEST), self.network.parameters(SMALLEST), SMALLEST),)


def test_memory_is_a_value_handed_from_round_to_round() -> None:
    method = Counting(NETWORK)
    start = method.initial_state()
    _, after = method.plan_round(start, torch.zeros(1), [Client(0, "a", 1.0, 1)], 0, named_generator(0))
    assert (float(start["rounds"]), float(after["rounds"])) == (0.0, 1.0)


def test_by_default_answers_are_averaged_and_a_leading_slice_is_deployed() -> None:
    method = Counting(NETWORK)
    flat = NETWORK.initial_weights(named_generator(0))
    clients = [Client(0, "a", 1.0, 1)]
    (assignment,), _ = method.plan_round(method.initial_state(), flat, clients, 0, named_generator(0))
    answers = Accumulator(flat.numel())
    answers.add(assignment.slice_map, assignment.slice_map.gather(flat) + 1, assignment.weight)
    merged = method.merge(flat, answers)
    deployed = method.deploy(merged, method.operating_points()[0])
    torch.testing.assert_close(deployed.flat, assignment.slice_map.gather(flat) + 1)
    assert deployed.flat.numel() == 49_916
