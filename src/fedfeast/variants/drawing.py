"""Architectures drawn at random from a space, within a budget."""

from collections.abc import Sequence

import numpy as np

from fedfeast.errors import InvalidInput
from fedfeast.networks import Architecture, ElasticResNet, SearchSpace
from fedfeast.networks.cost import count_macs
from fedfeast.variants.cache import Variant, VariantCache
from fedfeast.variants.fitness import Objective, decode, num_choices, score

CANDIDATES = 4096  # drawn at a time: at 25M MACs one in 2,100 of the paper's space is affordable
MOST_BATCHES = 1000  # without a single affordable candidate, then drawing is given up
LEAST_OF_COST = 0.95  # that a drawn network of a cache must have of its row's cost


def draw_architectures(
    space: SearchSpace, count: int, max_macs: float, generator: np.random.Generator
) -> list[Architecture]:
    """Draw each choice of a network uniformly, again and again until so many cost at most the given MACs."""
    least = count_macs(space, space.smallest)
    if least > max_macs:
        raise InvalidInput(f"no network of the space costs at most {max_macs:.0f} MACs: the smallest has {least}.")
    choices = num_choices(space)
    drawn: list[Architecture] = []
    barren = 0
    while len(drawn) < count:
        genes = generator.integers(0, choices, size=(CANDIDATES, len(choices)))
        affordable = genes[score(space, genes, Objective()).macs <= max_macs]
        barren = 0 if len(affordable) else barren + 1
        if barren == MOST_BATCHES:
            raise InvalidInput(
                f"none of {MOST_BATCHES * CANDIDATES:,} networks drawn from the space costs at most {max_macs:.0f} "
                "MACs: raise the budget, or choose a space with smaller networks."
            )
        drawn += [decode(space, row) for row in affordable[: count - len(drawn)]]
    return drawn


def draw_cache(network: ElasticResNet, costs_macs: Sequence[int], generator: np.random.Generator) -> VariantCache:
    """Draw for every cost a network that costs at most that and hardly less; a control of what searching adds."""
    space, taken = network.space, set[int]()
    choices = num_choices(space)
    variants: list[Variant] = []
    for cost in sorted(costs_macs):
        for _ in range(MOST_BATCHES):
            genes = generator.integers(0, choices, size=(CANDIDATES, len(choices)))
            macs = score(space, genes, Objective()).macs
            fitting = np.flatnonzero((macs <= cost) & (macs >= LEAST_OF_COST * cost) & ~np.isin(macs, list(taken)))
            if len(fitting):
                variants.append(Variant.of(network, decode(space, genes[fitting[0]])))
                taken.add(variants[-1].macs)
                break
        else:
            raise InvalidInput(
                f"none of {MOST_BATCHES * CANDIDATES:,} networks drawn from the space costs {LEAST_OF_COST:.0%} to "
                f"100 % of {cost} MACs: give costs that the space has."
            )
    return VariantCache.of(variants)
