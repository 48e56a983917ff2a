"""The small federation that rules are tried in."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedfeast.federation import Assignment, Client, Method, RoundOrder
from fedfeast.randomness import named_generator
from fedfeast.recipes import Recipe
from fedfeast.runs.assembly import Federation, assemble

RATE = 0.05  # of learning


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

    def with_seed(self, seed: int) -> "Trial":
        """Return the same trial with another seed."""
        return Trial(self.recipe.model_copy(update={"seed": seed}))

    def cohort(self, clients: Sequence[int]) -> list[Client]:
        """Return clients by their indices."""
        return [self.federation.clients[index] for index in clients]

    def assign(self, clients: Sequence[int], round_index: int = 0, flat: Tensor | None = None) -> list[Assignment]:
        """Return what a round gives to these clients."""
        generator = named_generator(self.recipe.seed, "plan", round_index)
        sent = self.initial_weights if flat is None else flat
        state = self.method.initial_state()
        return self.method.plan_round(state, sent, self.cohort(clients), round_index, generator)[0]

    def after_two_rounds(self) -> Tensor:
        """Return the global vector after two rounds of three clients."""
        engine, flat = self.federation.engine(), self.initial_weights.clone()
        for round_index in range(2):
            assigned = self.assign(self.federation.participants[:3], round_index)
            flat = engine.run_round(RoundOrder(flat, assigned, round_index, RATE)).flat
        return flat


def routed(assigned: Sequence[Assignment], size: int) -> Tensor:
    """Return which positions of the global vector some client is sent."""
    sent = torch.zeros(size, dtype=torch.bool)
    for assignment in assigned:
        sent[assignment.slice_map.index().long()] = True
    return sent
