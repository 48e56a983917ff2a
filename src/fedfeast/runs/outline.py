"""A federation without its data: method, population, and clients grouped by what they afford."""

from dataclasses import dataclass

import numpy as np

from fedfeast.federation import Assignment, Client, Method
from fedfeast.population import Population
from fedfeast.randomness import named_generator
from fedfeast.runs.assembly import build_without_data
from fedfeast.runs.recipe import Recipe
from fedfeast.variants import VariantCache


@dataclass(frozen=True, eq=False)
class Level:
    """The participating clients that afford the same variants: they are sent and train the same."""

    assignment: Assignment  # of one of them
    clients: np.ndarray  # their positions in the population
    affordable: int  # operating points

    def pass_macs(self, method: Method) -> float:
        """Return the expected convolution MACs of one example's forward passes in a step."""
        passes = method.expected_passes(self.assignment)
        return sum(share * method.network.convolution_macs(one) for one, share in passes.items())


@dataclass(frozen=True, eq=False)
class Outline:
    """The parts of a federation that need no data."""

    recipe: Recipe
    method: Method
    cache: VariantCache
    population: Population
    levels: tuple[Level, ...]

    @property
    def participants(self) -> int:
        """The number of clients that take part."""
        return sum(len(level.clients) for level in self.levels)

    @property
    def rounds_per_client(self) -> float:
        """The rounds a participating client is sampled in, on average."""
        training = self.recipe.training
        return training.rounds * min(training.clients_per_round, self.participants) / self.participants


def outline(recipe: Recipe) -> Outline:
    """Build everything of a federation but its data, with clients grouped by what they afford."""
    method, cache, population, indices = build_without_data(recipe)
    participants = np.array(indices)
    affordable = np.searchsorted([point.macs for point in method.operating_points()], population.budgets_macs, "right")
    flat = method.network.initial_weights(named_generator(recipe.seed, "weights"))
    levels = []
    for count in np.unique(affordable[participants]).tolist():
        clients = participants[affordable[participants] == count]
        budget = float(population.budgets_macs[clients].min())
        one = Client(int(clients[0]), population.names[clients[0]], budget, num_examples=1)
        generator = named_generator(recipe.seed, "plan")
        (assignment,), _ = method.plan_round(method.initial_state(), flat, [one], 0, generator)
        levels.append(Level(assignment, clients, count))
    return Outline(recipe, method, cache, population, tuple(levels))
