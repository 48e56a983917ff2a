"""The smallest method there is, on the interface alone."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.federation import (
    Accumulator,
    Assignment,
    Client,
    Constants,
    LocalSgd,
    Method,
    OperatingPoint,
    Parts,
    Pass,
    State,
    mixed_cross_entropy,
)
from fedfeast.networks import ElasticNetwork, ElasticResNet, SearchSpace
from fedfeast.randomness import named_generator
from fedfeast.routing import LeadingSlices

NETWORK = ElasticResNet(SearchSpace(image_size=8))
SMALLEST = NETWORK.space.smallest


@dataclass(frozen=True)
class Counting(Method):
    """Sends the smallest network and counts its rounds."""

    network: ElasticNetwork

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
        slices = LeadingSlices.of(self.network.layout, self.network.shapes(SMALLEST))
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


@dataclass(frozen=True)
class Halving(Counting):
    """Computes with half of every weight."""

    changes_weights: ClassVar = True

    def weights(self, weights: Tensor, constants: Constants) -> Tensor:
        return weights / 2


@dataclass(frozen=True)
class Choosy(Counting):
    """Counts no answer at all."""

    @property
    def counts_in_part(self) -> bool:
        return True

    def counted(self, assignment: Assignment, sent: Tensor, returned: Tensor) -> Tensor | None:
        return torch.zeros_like(returned, dtype=torch.bool)


def test_what_a_method_does_on_its_own_must_be_declared() -> None:
    with pytest.raises(TypeError, match=r"Silent has weights\(\) of its own: declare changes_weights = True"):

        class Silent(Counting):
            def weights(self, weights: Tensor, constants: Constants) -> Tensor:
                return -weights


def assignment_of(architectures: tuple[Hashable, ...]) -> Assignment:
    slices = LeadingSlices.of(NETWORK.layout, NETWORK.shapes(NETWORK.space.largest))
    return Assignment(Client(0, "a", 1e12, 1), slices, architectures, 1.0)


def test_passes_compute_with_the_clients_weights_unless_a_method_says_otherwise() -> None:
    method, vector = Counting(NETWORK), torch.arange(3.0)
    assert not method.changes_weights
    assert method.weights(vector, {}) is vector
    assert method.weight_gradient(vector, 2 * vector, {}) is vector
    assert Halving(NETWORK).changes_weights


def test_answers_count_everywhere_unless_a_method_says_otherwise() -> None:
    method, vector = Counting(NETWORK), torch.zeros(1)
    assert not method.counts_in_part
    assert method.counted(assignment_of((SMALLEST,)), vector, vector) is None
    assert Choosy(NETWORK).counts_in_part


def test_the_common_optimiser_is_taken_as_it_is() -> None:
    common = LocalSgd(0.3, 0.7)
    assert Counting(NETWORK).optimiser(common) == common


def test_a_client_is_charged_for_the_largest_network_it_trains() -> None:
    larger = NETWORK.space.largest
    for architectures in ((SMALLEST, larger), (larger, SMALLEST), (larger,)):
        assert Counting(NETWORK).served_macs(assignment_of(architectures)) == NETWORK.macs(larger)
    assert Counting(NETWORK).served_macs(assignment_of((SMALLEST,))) == NETWORK.macs(SMALLEST)


@dataclass(frozen=True)
class ManyPoints(Counting):
    """Serves one network at several budgets, beside a larger one."""

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        architectures = (SMALLEST, SMALLEST, self.network.largest)
        return tuple(OperatingPoint(str(macs), macs, 1, one) for macs, one in enumerate(architectures, start=1))


def test_training_comes_back_to_what_is_served_each_listed_once() -> None:
    assert Counting(NETWORK).trained_architectures() == (SMALLEST,)
    assert ManyPoints(NETWORK).trained_architectures() == (SMALLEST, NETWORK.space.largest)


def test_budgets_are_kept_and_begin_at_the_smallest_point_unless_a_method_says_otherwise() -> None:
    method = ManyPoints(NETWORK)
    assert method.keeps_budgets
    assert method.least_macs == 1
    assert Counting(NETWORK).least_macs == NETWORK.macs(SMALLEST)
    assert [Method.trains(Counting(NETWORK), NETWORK.macs(SMALLEST) - less) for less in (0, 1)] == [True, False]
