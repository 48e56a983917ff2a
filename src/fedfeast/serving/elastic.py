"""What only the elastic family has: networks that were never cached, found for a budget."""

import numpy as np
import torch

from fedfeast.errors import InvalidInput
from fedfeast.evaluation.slice_regions import ActivatedSupport
from fedfeast.federation import OperatingPoint
from fedfeast.methods.served_variants import cached_points
from fedfeast.networks import Architecture, ElasticResNet, SlicedVariant
from fedfeast.networks.built import BuiltNetwork, Member
from fedfeast.planning.outline import Outline
from fedfeast.randomness import named_generator
from fedfeast.serving.choice import Limits
from fedfeast.serving.support import trained_architectures
from fedfeast.variants import Variant
from fedfeast.variants.fitness import Objective, score
from fedfeast.variants.members import draw_members
from fedfeast.variants.search import search_one

# Choice: one percent of untrained weights costs a searched network as much as a fifth of a typical fitness.
UNTRAINED_PENALTY = 1e5
# Choice: the fitness alone may favour a network far below the budget; the least use that costs nothing is 90 %.
UNUSED_PENALTY, WANTED_USE = 1e5, 0.9


def search_point(built: Outline, limits: Limits) -> OperatingPoint:
    """Find the fittest affordable network, preferring weights that some client has trained."""
    network = built.method.network
    if isinstance(network, BuiltNetwork):
        return _search_member(built, network, limits)
    if not isinstance(network, ElasticResNet) or isinstance(network, SlicedVariant):
        raise InvalidInput(f"--search: {built.recipe.method_name} has no space of networks to search: leave it out.")
    _refuse_latency(limits)
    space, stages = network.space, network.space.num_stages
    trained = [Variant.of(network, one) for one in trained_architectures(built) if isinstance(one, Architecture)]
    depths, support = np.array(space.depths), ActivatedSupport.of(network, trained)

    def penalty(genes: np.ndarray) -> np.ndarray:
        chosen = depths[genes[:, :stages]], genes[:, stages : 2 * stages], genes[:, 2 * stages :]
        untrained = support.never_activated_shares(*chosen)
        cost = score(space, genes, Objective())
        use = np.maximum(cost.macs / (limits.max_macs or np.inf), cost.parameters / (limits.max_parameters or np.inf))
        return np.asarray(UNTRAINED_PENALTY * untrained + UNUSED_PENALTY * np.maximum(WANTED_USE - use, 0))

    found = search_one(
        space,
        limits.max_macs or float(network.macs(space.largest)),
        named_generator(built.recipe.seed, "extract", str(limits)),
        extra_penalty=penalty,
        max_parameters=limits.max_parameters,
    )
    (point,) = cached_points([Variant.of(network, found.architecture)])
    return point


def least_possible(built: Outline) -> str:
    """Say what a search could reach below the smallest served network."""
    network = built.method.network
    if not isinstance(network, ElasticResNet | BuiltNetwork) or isinstance(network, SlicedVariant):
        return ""
    least = Variant.of(network, network.smallest)
    return f"; with --search the least possible is {least.macs} MACs and {least.parameters} parameters"


def _search_member(built: Outline, network: BuiltNetwork, limits: Limits) -> OperatingPoint:
    """Find the affordable member with the most parameters that some client has trained."""
    _refuse_latency(limits)
    trained = network.layout.zeros(torch.bool)
    for architecture in trained_architectures(built):
        if isinstance(architecture, Member):
            for view in network.layout.views(trained, network.shapes(architecture)).values():
                view.fill_(True)
    generator = named_generator(built.recipe.seed, "extract", str(limits))
    variants = [Variant.of(network, one) for one in draw_members(network, generator)]
    most_macs, most_parameters = limits.max_macs or np.inf, limits.max_parameters or np.inf
    affordable = [one for one in variants if one.macs <= most_macs and one.parameters <= most_parameters]
    if not affordable:
        least = Variant.of(network, network.smallest)
        raise InvalidInput(
            f"no member of {network.builder.name} fits {limits}: the least has {least.macs} MACs and "
            f"{least.parameters} parameters; raise the limit to that or more."
        )

    def merit(variant: Variant) -> tuple[int, int]:
        views = network.layout.views(trained, network.shapes(variant.architecture)).values()
        return sum(int(view.sum()) for view in views), -variant.macs

    (point,) = cached_points([max(affordable, key=merit)])
    return point


def _refuse_latency(limits: Limits) -> None:
    if limits.max_latency_ms is not None:
        raise InvalidInput("--search counts costs and cannot measure: give --max-macs or --max-params instead.")
