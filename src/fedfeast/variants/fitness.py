"""How promising a network is before training: the objective of the offline search, for many candidates at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput
from fedfeast.networks import Architecture, SearchSpace

# (candidates, 3 S + 1): indices of S depths, S expansions and S + 1 widths, the stem's first.
Genes = NDArray[np.int64]
Values = NDArray[np.float64]

LARGEST_EXPONENT = 700.0  # exp overflows a little above


@dataclass(frozen=True)
class Objective:
    """The coefficients of the fitness, and the effectiveness that no searched network may exceed."""

    depth_variance: float = 10.0
    effectiveness: float = 1000.0
    monotonicity: float = 1.0
    greatest_effectiveness: float = 0.51
    stage_weights: tuple[float, ...] | None = None  # of the entropy; None weighs every stage 1

    def __post_init__(self) -> None:
        if not self.greatest_effectiveness > 0:
            raise InvalidInput(f"greatest_effectiveness = {self.greatest_effectiveness}: it must be above 0.")


@dataclass(frozen=True)
class Scores:
    """What the objective says of every candidate, and what the candidates cost."""

    fitness: Values
    effectiveness: Values
    entropy: Values
    macs: NDArray[np.int64]
    parameters: NDArray[np.int64]


def num_choices(space: SearchSpace) -> NDArray[np.int64]:
    """Return how many values every gene may take."""
    stages = space.num_stages
    counts = [len(space.depths)] * stages + [len(space.expansions)] * stages + [len(space.widths)] * (stages + 1)
    return np.array(counts, dtype=np.int64)


def encode(space: SearchSpace, architectures: Sequence[Architecture]) -> Genes:
    """Return one row of genes per architecture."""
    genes = np.empty((len(architectures), len(num_choices(space))), dtype=np.int64)
    for row, architecture in zip(genes, architectures, strict=True):
        space.validate(architecture)
        depths = [space.depths.index(depth) for depth in architecture.depths]
        expansions = [space.expansions.index(expansion) for expansion in architecture.expansions]
        row[:] = [*depths, *expansions, *architecture.width_indices]
    return genes


def decode(space: SearchSpace, genes: NDArray[np.int64]) -> Architecture:
    """Return the architecture of one row of genes."""
    depths, expansions, width_indices = np.split(genes, [space.num_stages, 2 * space.num_stages])
    return Architecture(
        tuple(space.depths[index] for index in depths),
        tuple(space.expansions[index] for index in expansions),
        tuple(int(index) for index in width_indices),
    )


def score(space: SearchSpace, genes: Genes, objective: Objective) -> Scores:
    """Score every candidate; neither a cost limit nor the greatest effectiveness changes a fitness."""
    layers = _layers_of(space, genes)
    entropy, effectiveness = _entropy_and_effectiveness(space, layers, objective)
    outgoing = layers.channels[:, 1:]
    narrowing = np.maximum(outgoing[:, :-1] - outgoing[:, 1:], 0).sum(axis=1)
    variance = np.minimum(layers.depths.var(axis=1), LARGEST_EXPONENT)
    fitness = (
        entropy
        - objective.depth_variance * np.exp(variance)
        + objective.effectiveness * effectiveness
        - objective.monotonicity * narrowing
    )
    return Scores(fitness, effectiveness, entropy, _count_macs(space, layers), _count_parameters(space, layers))


@dataclass(frozen=True)
class _Layers:
    depths: NDArray[np.int64]  # (candidates, S), extra blocks
    channels: NDArray[np.int64]  # (candidates, S + 1), after the stem and after every stage
    middles: NDArray[np.int64]  # (candidates, S), between the two convolutions of a block


@lru_cache(maxsize=8)
def _width_tables(space: SearchSpace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the channels (S + 1, widths) and the middle channels (S, widths, expansions) of every choice."""
    stages = range(space.num_stages)
    channels = np.empty((space.num_stages + 1, len(space.widths)), dtype=np.int64)
    middles = np.empty((space.num_stages, len(space.widths), len(space.expansions)), dtype=np.int64)
    for width_index in range(len(space.widths)):
        for expansion_index, expansion in enumerate(space.expansions):
            uniform = Architecture(
                (space.depths[0],) * len(stages), (expansion,) * len(stages), (width_index,) * (len(stages) + 1)
            )
            outgoing = [space.stage_width(uniform, stage) for stage in stages]
            channels[:, width_index] = [space.stem_width(uniform), *outgoing]
            middles[:, width_index, expansion_index] = [space.middle_width(uniform, stage) for stage in stages]
    return channels, middles


def _layers_of(space: SearchSpace, genes: Genes) -> _Layers:
    depth_indices, expansion_indices, width_indices = np.split(genes, [space.num_stages, 2 * space.num_stages], axis=1)
    channels, middles = _width_tables(space)
    return _Layers(
        np.array(space.depths, dtype=np.int64)[depth_indices],
        channels[np.arange(space.num_stages + 1), width_indices],
        middles[np.arange(space.num_stages), width_indices[:, 1:], expansion_indices],
    )


def _entropy_and_effectiveness(space: SearchSpace, layers: _Layers, objective: Objective) -> tuple[Values, Values]:
    """Return H, the log-volume of what every stage can express, and rho, depth over mean layer width."""
    weights = np.ones(space.num_stages) if objective.stage_weights is None else np.array(objective.stage_weights)
    if weights.shape != (space.num_stages,):
        raise InvalidInput(
            f"stage_weights has {weights.size} entries for {space.num_stages} stages: give one weight per stage."
        )
    log_channels, log_middles = np.log(layers.channels), np.log(layers.middles)
    log_incoming, log_outgoing = log_channels[:, :-1], log_channels[:, 1:]
    log_kernel = np.log(9)
    # A convolution's width is its kernel's area times its incoming channels; the projection's kernel is 1 x 1.
    first_block = 2 * log_incoming + log_middles + 2 * log_kernel
    further_blocks = layers.depths * (log_outgoing + log_middles + 2 * log_kernel)
    log_widths = first_block + further_blocks  # (candidates, S), summed over a stage's convolutions
    log_volumes = 2 * np.log(space.feature_sizes()[1:]) + log_outgoing
    entropy = (weights * log_volumes * log_widths).sum(axis=1)
    num_convolutions = 1 + (3 + 2 * layers.depths).sum(axis=1)
    mean_log_width = (np.log(9 * space.image_channels) + log_widths.sum(axis=1)) / num_convolutions
    return entropy, num_convolutions / np.exp(mean_log_width)


def _count_macs(space: SearchSpace, layers: _Layers) -> NDArray[np.int64]:
    """Return networks.cost.count_macs of every candidate."""
    areas = np.array(space.feature_sizes(), dtype=np.int64) ** 2
    incoming, outgoing = layers.channels[:, :-1], layers.channels[:, 1:]
    first_block = 9 * layers.middles * (incoming + outgoing) + incoming * outgoing
    further_blocks = 18 * layers.depths * layers.middles * outgoing
    stem = 9 * space.image_channels * areas[0] * layers.channels[:, 0]
    macs = stem + ((first_block + further_blocks) * areas[1:]).sum(axis=1) + space.classes * outgoing[:, -1]
    return np.asarray(macs, dtype=np.int64)


def _count_parameters(space: SearchSpace, layers: _Layers) -> NDArray[np.int64]:
    """Return networks.cost.count_parameters of every candidate."""
    incoming, outgoing, middles = layers.channels[:, :-1], layers.channels[:, 1:], layers.middles
    first_block = 9 * middles * (incoming + outgoing) + incoming * outgoing + 2 * (middles + 2 * outgoing)
    further_blocks = layers.depths * (18 * middles * outgoing + 2 * (middles + outgoing))
    stem = (9 * space.image_channels + 2) * layers.channels[:, 0]
    parameters = stem + (first_block + further_blocks).sum(axis=1) + space.classes * (outgoing[:, -1] + 1)
    return np.asarray(parameters, dtype=np.int64)
