"""The offline search of variants: for every MAC limit the fittest network of the space (Sec. 3.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput
from fedfeast.networks import SearchSpace
from fedfeast.variants.fitness import Genes, Objective, Scores, Values, decode, encode, num_choices, score

TOURNAMENT = 3  # candidates that compete to be one parent
# Choice: more than the one gene in three children of the reference, to leave optima that bind two limits at once.
MUTATED_GENES = 2.0  # expected per child
LONGEST_CLIMB = 100  # steps, in case a penalty rounds differently from batch to batch

Penalty = Callable[[Genes], Values]


@dataclass(frozen=True)
class SearchSettings:
    """The effort per target: candidates, generations and independent populations."""

    # Many small populations: one large population often settles in a neighbouring optimum.
    population: int = 64
    generations: int = 100
    restarts: int = 16

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise InvalidInput(f"search {field.name} = {getattr(self, field.name)}: it must be at least 1.")


@dataclass(frozen=True)
class Found:
    """The fittest network found within a target; its fitness is the objective's, without an extra penalty."""

    target_macs: float
    architecture: Any  # of the elastic ResNet's space, or a member of a built network
    macs: int
    parameters: int
    fitness: float
    effectiveness: float
    entropy: float


def search_cache(
    space: SearchSpace,
    targets_macs: Sequence[float],
    generator: np.random.Generator,
    settings: SearchSettings | None = None,
    objective: Objective | None = None,
    on_target: Callable[[Found], None] | None = None,
) -> tuple[Found, ...]:
    """Return the fittest network within every target, in the targets' order; report each as it is found."""
    if not len(targets_macs):
        raise InvalidInput("targets = []: give at least one target in MACs.")
    problems = [_Problem(space, objective or Objective(), target) for target in targets_macs]
    rising = sorted(range(len(problems)), key=lambda position: problems[position].max_macs)
    winners: Genes = np.empty((0, len(num_choices(space))), dtype=np.int64)  # of the targets done, rising
    for position in rising:
        winner = _solve(problems[position], generator, settings or SearchSettings(), winners)
        winners = np.concatenate([winners, winner[None]])
        if on_target is not None:
            on_target(_describe(problems[position], winner))
    # A greater target's winner may fit a smaller target that its own search served worse.
    for row in reversed(range(len(rising) - 1)):
        baselines = winners[row : row + 2]
        winners[row] = baselines[_best(*problems[rising[row]].judge(baselines))]
    found = {position: _describe(problems[position], winners[row]) for row, position in enumerate(rising)}
    return tuple(found[position] for position in range(len(problems)))


def search_one(
    space: SearchSpace,
    max_macs: float,
    generator: np.random.Generator,
    settings: SearchSettings | None = None,
    objective: Objective | None = None,
    extra_penalty: Penalty | None = None,
    max_parameters: float | None = None,
) -> Found:
    """Return the network of greatest fitness less the extra penalty of its genes, within both limits."""
    limit = np.inf if max_parameters is None else max_parameters
    problem = _Problem(space, objective or Objective(), max_macs, limit, extra_penalty)
    nothing_known = np.empty((0, len(num_choices(space))), dtype=np.int64)
    return _describe(problem, _solve(problem, generator, settings or SearchSettings(), nothing_known))


def dominated(found: Sequence[Found]) -> list[int]:
    """Return the positions that another one equals or beats in fitness with no more MACs; the first of equals stays."""
    ranks = [(one.macs, -one.fitness, position) for position, one in enumerate(found)]
    positions, greatest = [], -np.inf
    for _, loss, position in sorted(ranks):
        if -loss <= greatest:
            positions.append(position)
        greatest = max(greatest, -loss)
    return sorted(positions)


def repeated(found: Sequence[Found]) -> list[int]:
    """Return the positions whose architecture occurs earlier."""
    architectures = [one.architecture for one in found]
    return [position for position, one in enumerate(architectures) if one in architectures[:position]]


@dataclass(frozen=True)
class _Problem:
    """One limit to search within."""

    space: SearchSpace
    objective: Objective
    max_macs: float
    max_parameters: float = np.inf
    extra_penalty: Penalty | None = None

    def __post_init__(self) -> None:
        least = self.score(encode(self.space, [self.space.smallest]))
        limits = (("MACs", self.max_macs, least.macs[0]), ("parameters", self.max_parameters, least.parameters[0]))
        for unit, limit, smallest in limits:
            if not limit >= smallest:
                raise InvalidInput(
                    f"a target of {limit:.0f} {unit} is below the least network of the space, "
                    f"which has {smallest}: raise it to that or more."
                )

    def score(self, genes: Genes) -> Scores:
        """Score candidates by the objective alone."""
        return score(self.space, genes, self.objective)

    def judge(self, genes: Genes) -> tuple[Values, Values]:
        """Return by how much candidates of any leading shape break the limits, 0 for not at all, and their merits."""
        rows = genes.reshape(-1, genes.shape[-1])
        scores = self.score(rows)
        # Graded, so that a population of infeasible candidates moves towards the feasible ones.
        excess = (
            np.maximum(scores.macs / self.max_macs - 1, 0)
            + np.maximum(scores.parameters / self.max_parameters - 1, 0)
            + np.maximum(scores.effectiveness - self.objective.greatest_effectiveness, 0)
        )
        merits = scores.fitness if self.extra_penalty is None else scores.fitness - self.extra_penalty(rows)
        return excess.reshape(genes.shape[:-1]), merits.reshape(genes.shape[:-1])


def _solve(
    problem: _Problem, generator: np.random.Generator, settings: SearchSettings, known: Genes
) -> NDArray[np.int64]:
    """Evolve independent populations, climb from each one's best and return the genes of the best."""
    populations = _first_populations(problem.space, generator, settings, known)
    excess, merits = problem.judge(populations)
    row = np.arange(settings.restarts)
    best = _best(excess, merits)
    for _ in range(settings.generations):
        elite, elite_excess, elite_merits = populations[row, best], excess[row, best], merits[row, best]
        populations = _children(problem.space, generator, populations, excess, merits)
        excess, merits = problem.judge(populations)
        worst = _best(-excess, -merits)
        populations[row, worst], excess[row, worst], merits[row, worst] = elite, elite_excess, elite_merits
        best = _best(excess, merits)
    peaks = np.stack([_climb(problem, genes) for genes in np.unique(populations[row, best], axis=0)])
    excess, merits = problem.judge(peaks)
    winner = int(_best(excess, merits))
    if excess[winner] != 0:
        parameters = "" if problem.max_parameters == np.inf else f" and {problem.max_parameters:.0f} parameters"
        raise InvalidInput(
            f"no network was found within {problem.max_macs:.0f} MACs{parameters} whose effectiveness is at most "
            f"{problem.objective.greatest_effectiveness}: raise the target or greatest_effectiveness."
        )
    return np.asarray(peaks[winner], dtype=np.int64)


def _describe(problem: _Problem, genes: NDArray[np.int64]) -> Found:
    scores = problem.score(genes[None])
    return Found(
        problem.max_macs,
        decode(problem.space, genes),
        int(scores.macs[0]),
        int(scores.parameters[0]),
        float(scores.fitness[0]),
        float(scores.effectiveness[0]),
        float(scores.entropy[0]),
    )


def _first_populations(
    space: SearchSpace, generator: np.random.Generator, settings: SearchSettings, known: Genes
) -> Genes:
    """Draw candidates of all sizes, (restarts, population, genes); the first population holds the known ones too."""
    choices = num_choices(space)
    shape = (settings.restarts, settings.population)
    # Uniform genes would nearly all be far too large for a small target; a ceiling per candidate spreads the sizes.
    ceilings = generator.random((*shape, 1))
    populations = (generator.random((*shape, len(choices))) * ceilings * choices).astype(np.int64)
    populations[:, 0] = encode(space, [space.smallest])
    recent = known[-settings.population :]
    populations[0, : len(recent)] = recent[::-1]
    return populations


def _children(
    space: SearchSpace, generator: np.random.Generator, populations: Genes, excess: Values, merits: Values
) -> Genes:
    """Return the next generation: tournaments, single-point crossover of consecutive parents, mutation."""
    restarts, population, num_genes = populations.shape
    row = np.arange(restarts)[:, None]
    baselines = generator.integers(population, size=(restarts, population, TOURNAMENT))
    victors = _best(excess[row[..., None], baselines], merits[row[..., None], baselines])
    parents = populations[row, np.take_along_axis(baselines, victors[..., None], axis=2)[..., 0]]
    cuts = generator.integers(1, num_genes, size=(restarts, population, 1))
    children = np.where(np.arange(num_genes) < cuts, parents, np.roll(parents, -1, axis=1))
    redrawn = generator.integers(num_choices(space), size=children.shape)
    return np.where(generator.random(children.shape) < MUTATED_GENES / num_genes, redrawn, children)


def _best(excess: Values, merits: Values) -> NDArray[np.int64]:
    """Return the position, along the last axis, of the least excess and among those of the greatest merit."""
    within = excess == excess.min(axis=-1, keepdims=True)
    return np.asarray(np.where(within, merits, -np.inf).argmax(axis=-1), dtype=np.int64)


def _climb(problem: _Problem, genes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Move to the best candidate that differs in at most two genes, until that is the place itself."""
    first, second = _moves(problem.space)
    every = np.arange(len(first))
    for _ in range(LONGEST_CLIMB):
        neighbours = np.repeat(genes[None], len(first), axis=0)
        for gene, value in (first.T, second.T):
            neighbours[every, gene] = value
        excess, merits = problem.judge(neighbours)
        best = int(_best(excess, merits))
        ties = neighbours[(excess == excess[best]) & (merits == merits[best])]
        # Several genes may mean the same channels: the least genes stand for them, so that repeats are seen.
        following = np.array(min(ties.tolist()), dtype=np.int64)
        if np.array_equal(following, genes):
            break
        genes = following
    return genes


@lru_cache(maxsize=8)
def _moves(space: SearchSpace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs of assignments (gene, value), each as (moves, 2); a pair of equals changes one gene."""
    choices = num_choices(space)
    assignments = np.array([(gene, value) for gene, count in enumerate(choices) for value in range(count)])
    first, second = np.triu_indices(len(assignments))
    useful = (assignments[first, 0] != assignments[second, 0]) | (first == second)
    return assignments[first[useful]], assignments[second[useful]]
