"""The small federation that rules are tried in."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedfeast.federation import Assignment, Client, Method, OperatingPoint, RoundOrder, State
from fedfeast.randomness import named_generator
from fedfeast.recipes import Recipe
from fedfeast.runs.assembly import Federation, assemble

RATE = 0.05  # of learning
LATER = 4  # of so many participants one is asked after the first round: plans of large networks take their time


@dataclass(frozen=True)
class Trial:
    """A recipe's federation, put together once for all rules."""

    recipe: Recipe

    @cached_property
    def federation(self) -> Federation:
        """All that a run works with."""
        return assemble(self.recipe)

    @property
    def method(self) -> Method:
        """The method on trial."""
        return self.federation.method

    @cached_property
    def initial_weights(self) -> Tensor:
        """The global vector that a run would start from."""
        return self.federation.initial_weights()

    @property
    def least_client(self) -> int:
        """The participant with the smallest budget."""
        return min(self.federation.participants, key=lambda index: self.federation.clients[index].budget_macs)

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds that are planned: the first two, one in the middle and the last."""
        number = self.recipe.training.rounds
        return tuple(sorted({0, min(1, number - 1), number // 2, number - 1}))

    @property
    def some_points(self) -> tuple[OperatingPoint, ...]:
        """The least operating point, one in the middle and the last."""
        points = self.method.operating_points()
        return tuple(points[place] for place in sorted({0, len(points) // 2, len(points) - 1}))

    def with_seed(self, seed: int) -> "Trial":
        """Return the same trial with another seed."""
        return Trial(self.recipe.model_copy(update={"seed": seed}))

    def cohort(self, clients: Sequence[int]) -> list[Client]:
        """Return clients by their indices."""
        return [self.federation.clients[index] for index in clients]

    def asked(self, round_index: int) -> list[Client]:
        """Return all participants in the first round and some, the one with the smallest budget among them, later."""
        everybody = self.federation.participants
        return self.cohort(sorted({*everybody[::LATER], self.least_client}) if round_index else everybody)

    def plan(
        self, state: State, clients: Sequence[Client], round_index: int, flat: Tensor | None = None
    ) -> tuple[list[Assignment], State]:
        """Return what a round gives to these clients, and what the method then remembers."""
        sent = self.initial_weights if flat is None else flat
        generator = named_generator(self.recipe.seed, "plan", round_index)
        return self.method.plan_round(state, sent, clients, round_index, generator)

    def assign(self, clients: Sequence[int], round_index: int = 0, flat: Tensor | None = None) -> list[Assignment]:
        """Return what a round gives to these clients when nothing is remembered."""
        return self.plan(self.method.initial_state(), self.cohort(clients), round_index, flat)[0]

    def plans(
        self, clients: Sequence[Client] | None = None, flat: Tensor | None = None
    ) -> Iterator[tuple[int, list[Assignment]]]:
        """Yield some rounds and what they give to these clients, to those asked unless told."""
        state = self.method.initial_state()
        for round_index in self.rounds:
            assigned, state = self.plan(state, clients or self.asked(round_index), round_index, flat)
            yield round_index, assigned

    def after_two_rounds(self) -> Tensor:
        """Return the global vector after two rounds of three clients."""
        engine, flat, state = self.federation.engine(), self.initial_weights.clone(), self.method.initial_state()
        cohort = self.cohort(self.federation.participants[:3])
        for round_index in range(2):
            assigned, state = self.plan(state, cohort, round_index)
            flat = engine.run_round(RoundOrder(flat, assigned, round_index, RATE)).flat
        return flat


def routed(assigned: Sequence[Assignment], size: int) -> Tensor:
    """Return which positions of the global vector some client is sent."""
    sent = torch.zeros(size, dtype=torch.bool)
    for assignment in assigned:
        sent[assignment.slice_map.index().long()] = True
    return sent
