"""The members of a built network as a cache by itself: the best of each cost."""

from collections.abc import Callable, Sequence

import numpy as np

from fedfeast.errors import InvalidInput
from fedfeast.networks.built import BuiltNetwork, Member
from fedfeast.variants.cache import Variant, VariantCache

MOST_CANDIDATES = 64  # members that are looked at, some tens of milliseconds each; of more so many are drawn
MOST_DRAWS = 20 * MOST_CANDIDATES

Score = Callable[[Member], float]


def choose_members(
    network: BuiltNetwork,
    num_targets: int,
    generator: np.random.Generator,
    score: Score | None = None,
    targets_macs: Sequence[float] | None = None,
) -> VariantCache:
    """Return the best member within each of some evenly spaced costs; without a score the one of most parameters."""
    if num_targets < 1:
        raise InvalidInput(f"variants.num_targets = {num_targets}: it must be at least 1.")
    front = pareto_front([Variant.of(network, one) for one in draw_members(network, generator)], score)
    least, greatest = front[0].macs, front[-1].macs
    # Choice: equal ratios, as budgets of devices lie; the ends are always among them.
    targets = np.geomspace(max(least, 1), max(greatest, 1), num_targets) if targets_macs is None else targets_macs
    if targets_macs is not None and min(targets_macs) < least:
        raise InvalidInput(
            f"a target of {min(targets_macs):.0f} MACs is below the least network of {network.builder.name}, "
            f"which has {least}: raise it to that or more."
        )
    # Rounding may put the last target a little below the greatest.
    chosen = [max((one for one in front if one.macs <= 1.000001 * target), key=_macs) for target in targets]
    return VariantCache.of(list(dict.fromkeys(chosen)))


def draw_members(network: BuiltNetwork, generator: np.random.Generator) -> list[Member]:
    """Return all members of a small family; of a large one both ends and members drawn at random, each once."""
    builder = network.builder
    if builder.num_members <= MOST_CANDIDATES:
        return list(builder.members())
    drawn = dict.fromkeys((builder.smallest, builder.largest))
    for _ in range(MOST_DRAWS):
        values = {name: values[generator.integers(len(values))] for name, values in builder.choices.items()}
        drawn[Member.of(values)] = None
        if len(drawn) == MOST_CANDIDATES:
            break
    return list(drawn)


def pareto_front(variants: Sequence[Variant], score: Score | None = None) -> list[Variant]:
    """Return the variants that no cheaper or equally cheap one equals in score, least MACs first."""
    scores = {one: float(one.parameters if score is None else score(one.architecture)) for one in variants}
    front: list[Variant] = []
    for one in sorted(variants, key=lambda one: (one.macs, -scores[one])):
        if not front or scores[one] > scores[front[-1]]:
            front.append(one)
    return front


def _macs(variant: Variant) -> int:
    return variant.macs
