"""A federation without its examples: method, population, and clients grouped by what they afford."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fedfeast.data import load_dataset
from fedfeast.errors import InvalidInput
from fedfeast.federation import Assignment, Client, Method
from fedfeast.federation.pacing import TRAINING_FACTOR
from fedfeast.population import Population
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_method, build_pace, build_population, choose_participants, lift_budgets
from fedfeast.recipes.recipe import Recipe
from fedfeast.recipes.splitting import NaturalSplit, split_dataset
from fedfeast.variants import VariantCache

Assignments = tuple[Assignment, ...]
Cost = Callable[[Any], float]  # of one pass through an architecture


@dataclass(frozen=True, eq=False)
class BudgetGroup:
    """The participating clients that afford the same variants: they are sent and train the same."""

    assignments: tuple[Assignment, ...]  # of one of them; of several where clients or rounds differ
    clients: np.ndarray  # their positions in the population
    affordable: int  # operating points
    shares: tuple[float, ...] = ()  # of the rounds, that each assignment stands for; without them equal ones

    @property
    def payload(self) -> float:
        """The mean number of parameters sent one way."""
        payloads = [one.slice_map.payload for one in self.assignments]
        return float(np.average(payloads, weights=self.shares) if self.shares else np.mean(payloads))

    @property
    def largest_payload(self) -> int:
        """The most parameters that are sent one way in any round."""
        return max(one.slice_map.payload for one in self.assignments)

    def expected_passes(self, method: Method) -> dict[Hashable, float]:
        """Return how often a local step passes through each architecture on average."""
        passes: dict[Hashable, float] = {}
        for place, assignment in enumerate(self.assignments):
            for architecture, times in method.expected_passes(assignment).items():
                own = times * self.shares[place] if self.shares else times / len(self.assignments)
                passes[architecture] = passes.get(architecture, 0.0) + own
        return passes

    def pass_macs(self, method: Method, cost: Cost | None = None) -> float:
        """Return the expected MACs of one example's forward passes in a step, of convolutions unless told."""
        cost = cost or method.network.convolution_macs
        return sum(share * cost(one) for one, share in self.expected_passes(method).items())

    def largest_macs(self, method: Method, cost: Cost | None = None) -> float:
        """Return the MACs of one example's pass through the largest network that is trained, counted the same way."""
        cost = cost or method.network.convolution_macs
        return max(cost(one.architectures[-1]) for one in self.assignments)


@dataclass(frozen=True, eq=False)
class Outline:
    """The parts of a federation that need no examples."""

    recipe: Recipe
    method: Method
    cache: VariantCache
    population: Population
    participants: tuple[int, ...]  # the clients that may be sampled
    natural: NaturalSplit | None = None  # the data's own clients, where they take part

    @property
    def answers_per_round(self) -> int:
        """How many clients' answers a round merges: those of all whom it asks, or the first ones."""
        pace = build_pace(self.recipe)
        return min(pace.buffer or pace.at_once, len(self.participants))

    @property
    def rounds_per_client(self) -> float:
        """The rounds that merge a participating client's answer, on average."""
        return self.recipe.training.rounds * self.answers_per_round / len(self.participants)

    def training_pmacs(self, num_examples: np.ndarray, largest_only: bool = False, cost: Cost | None = None) -> float:
        """Return the PMACs of all rounds by the paper's proxy, for clients with so many examples."""
        total = 0.0
        for group in self.groups:
            macs = group.largest_macs(self.method, cost) if largest_only else group.pass_macs(self.method, cost)
            total += macs * float(num_examples[group.clients].sum())
        visits = self.rounds_per_client * self.recipe.training.local_epochs
        return TRAINING_FACTOR * visits * total / 1e15

    @cached_property
    def groups(self) -> tuple[BudgetGroup, ...]:
        """The participating clients by what they afford, least first."""
        recipe, method, population = self.recipe, self.method, self.population
        participants = np.array(self.participants)
        prices = [point.price for point in method.operating_points()]
        affordable = np.searchsorted(prices, population.budgets_macs, "right")
        flat = torch.empty(0)
        if method.plans_by_weights:
            flat = method.network.initial_weights(named_generator(recipe.seed, "weights"))
        groups = []
        for count in np.unique(affordable[participants]).tolist():
            clients = participants[affordable[participants] == count]
            budget = float(population.budgets_macs[clients].min())
            alike = recipe.training.clients_per_round if method.plans_differ else 1
            cohort = [Client(index, population.names[clients[0]], budget, num_examples=1) for index in range(alike)]
            assignments, shares = self._planned(cohort, flat)
            groups.append(BudgetGroup(assignments, clients, count, shares))
        return tuple(groups)

    def _planned(self, cohort: Sequence[Client], flat: torch.Tensor) -> tuple[Assignments, tuple[float, ...]]:
        """Return what clients are assigned in the rounds that stand for all of them, and the share of each."""
        method, state = self.method, self.method.initial_state()
        shares: dict[Hashable, float] = {}
        kept: dict[Hashable, Assignment] = {}
        rounds = method.rounds_alike()
        for round_index, share in rounds.items():
            generator = named_generator(self.recipe.seed, "plan")
            assignments, _ = method.plan_round(state, flat, cohort, round_index, generator)
            if len(rounds) == 1:
                return tuple(assignments), ()
            for assignment in assignments:
                key = assignment.architectures
                kept.setdefault(key, assignment)
                shares[key] = shares.get(key, 0.0) + share / len(assignments)
        return tuple(kept.values()), tuple(shares.values())


def refuse_larger_cohorts(recipe: Recipe, population: Population) -> None:
    """Refuse rounds that ask for more clients than there are; a fleet's may still join, pooled ones are one."""
    asked, section = recipe.training.clients_per_round, recipe.population
    if asked > population.num_clients and section.source != "fleet" and not section.pooled:
        raise InvalidInput(
            f"training.clients_per_round = {asked} is more than the {population.num_clients} clients of the "
            f"population: set it to {population.num_clients} or less."
        )


def outline(recipe: Recipe) -> Outline:
    """Build everything of a federation but its examples; only the data can say who their own clients are."""
    method, parts = build_method(recipe)
    split = None
    if recipe.population.source == "data":
        split = split_dataset(recipe, load_dataset(recipe.data.name, recipe.data.folder))
    population = lift_budgets(recipe.population, build_population(recipe, split), method)
    participants = choose_participants(recipe.population, population, method)
    return Outline(recipe, method, parts.cache, population, participants, split.natural if split else None)
