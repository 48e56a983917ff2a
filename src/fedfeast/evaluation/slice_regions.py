"""The supernet cut into regions that are routed and activated as one, and what no variant ever activates (Sec. 3.3)."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedfeast.methods.supernet.feast import TrainingRule
from fedfeast.networks import Architecture, ElasticNetwork, ElasticResNet, Shapes
from fedfeast.routing import envelope_of
from fedfeast.variants import Variant, VariantCache

Counts = NDArray[np.int64]
Extents = NDArray[np.int64]  # (architectures, axes): a tensor's sizes, two axes at least, 0 where it is absent
CountPairs = Callable[[str, Extents], Counts]  # a tensor's pairs of channels that count, per architecture


class Part(NamedTuple):
    """A place in the network: a stage's block, or the stem or the head as a whole."""

    stage: str
    block: int | None


@dataclass(frozen=True, eq=False)
class SliceRegions:
    """Blocks, for most tensors rectangles of output and input channels, that tile them; each is sent as one."""

    tensor_names: tuple[str, ...]
    tensors: Counts  # (regions,) positions in tensor_names
    bounds: Counts  # (regions, 4): output start and stop, input start and stop, along the first two axes
    num_parameters: Counts  # (regions,)
    routed_from: Counts  # (regions,) the fewest variants a client must afford; one more than there are: never
    activates: NDArray[np.bool_]  # (regions, variants)
    networks: tuple[Hashable, ...]  # the variants' architectures, which a cache may have twice

    @property
    def num_variants(self) -> int:
        """The number of cached variants."""
        return int(self.activates.shape[1])

    @property
    def activated_from(self) -> Counts:
        """The fewest variants a client must afford for one of them to activate each region."""
        first = self.activates.argmax(axis=1) + 1
        return np.where(self.activates.any(axis=1), first, self.num_variants + 1)

    def routed(self) -> NDArray[np.bool_]:
        """Return r_g, (regions, variants + 1): whether a client that affords the first g variants receives it."""
        return np.arange(self.num_variants + 1) >= self.routed_from[:, None]

    def multiplicities(self, rule: TrainingRule = "full") -> NDArray[np.float64]:
        """Return h_g, (regions, variants + 1): its expected activations per local step (Eq. 10)."""
        return np.asarray(self.activates @ expected_passes(rule, self.networks))


def cut_regions(network: ElasticNetwork, cache: VariantCache) -> SliceRegions:
    """Cut every tensor at all the bounds of the cache's variants and of their envelopes, along all its axes."""
    prefixes = (cache.variants[: number + 1] for number in range(len(cache)))
    envelopes = [network.shapes(envelope_of(prefix, network)) for prefix in prefixes]
    variants = [network.shapes(variant.architecture) for variant in cache]
    bounds, sizes, routed, activates = [], [], [], []
    for name, shape in network.layout.shapes.items():
        rank = len(_extent(shape))
        extents = np.concatenate([_extents(envelopes, name, rank), _extents(variants, name, rank)])
        blocks = _grid(np.vstack([extents, _extent(shape)]))
        inside = np.asarray((blocks[:, None, 1::2] <= extents).all(axis=2))  # (blocks, envelopes and variants)
        bounds.append(blocks[:, :4])
        sizes.append((blocks[:, 1::2] - blocks[:, ::2]).prod(axis=1))
        routed.append(inside[:, : len(cache)])
        activates.append(inside[:, len(cache) :])
    return SliceRegions(
        tensor_names=tuple(network.layout.shapes),
        tensors=np.repeat(np.arange(len(bounds)), list(map(len, bounds))),
        bounds=np.concatenate(bounds),
        num_parameters=np.concatenate(sizes),
        routed_from=1 + (~np.concatenate(routed)).sum(axis=1),  # envelopes are nested: those that miss it come first
        activates=np.concatenate(activates),
        networks=tuple(variant.architecture for variant in cache),
    )


def expected_passes(rule: TrainingRule, networks: Sequence[Hashable]) -> NDArray[np.float64]:
    """Return (variants, variants + 1): how often a local step trains each, by the number a client affords."""
    passes = np.zeros((len(networks), len(networks) + 1))
    for affordable in range(1, len(networks) + 1):
        smallest, largest = networks[0], networks[affordable - 1]
        of_client = passes[:, affordable]
        if rule != "local-max":
            of_client[0] = 1
        if rule == "local-max" or (rule != "global-min" and largest != smallest):
            of_client[affordable - 1] = 1
        interior = [place for place in range(1, affordable - 1) if networks[place] not in (smallest, largest)]
        if rule == "full" and interior:
            of_client[interior] = 1 / len(interior)
    return passes


def part_of(tensor_name: str) -> Part:
    """Return where in the network a tensor lies; in a network of one's own the first number of its name is a block."""
    stage, *inner = tensor_name.split(".")
    numbers = (word.removeprefix("block") for word in inner)
    return Part(stage, next((int(number) for number in numbers if number.isdecimal()), None))


@dataclass(frozen=True, eq=False)
class PartTables:
    """Parameter counts of any architecture as a sum of table entries: one of the stem, each stage, the head."""

    stem: Counts  # (widths,)
    stages: Counts  # (stages, greatest depth + 1, incoming widths, widths, expansions)
    head: Counts  # (widths,)

    def count(self, depths: Counts, expansions: Counts, widths: Counts) -> Counts:
        """Return (architectures,) counts of architectures given as indices, one row each."""
        stage = np.arange(len(self.stages))
        stages = self.stages[stage, depths, widths[:, :-1], widths[:, 1:], expansions]
        return np.asarray(self.stem[widths[:, 0]] + stages.sum(axis=1) + self.head[widths[:, -1]])


@dataclass(frozen=True, eq=False)
class ActivatedSupport:
    """The positions that some of a set of variants activates, ready to be intersected with any architecture."""

    activated: PartTables
    total: PartTables

    @classmethod
    def of(cls, network: ElasticResNet, variants: Sequence[Variant]) -> "ActivatedSupport":
        """Tabulate the union of the variants' slices, e.g. of all that some participating client affords."""
        shapes = [network.shapes(variant.architecture) for variant in variants]
        unions = {name: _union_steps(_extents(shapes, name)[:, :2]) for name in network.layout.shapes}
        probes = _probe_shapes(network)
        activated = _tabulate(network, probes, lambda name, extents: _overlap(unions[name], extents))
        return cls(activated, _tabulate(network, probes, lambda _, extents: extents.prod(axis=1)))

    def never_activated_shares(self, depths: Counts, expansions: Counts, widths: Counts) -> NDArray[np.float64]:
        """Return the share of each architecture's parameters that no variant activates, 0 to 1.

        Architectures are rows: extra blocks, places among the space's expansions, width indices.
        """
        return 1 - self.activated.count(depths, expansions, widths) / self.total.count(depths, expansions, widths)


def _probe_shapes(network: ElasticResNet) -> dict[str, list[Shapes]]:
    """Return, for the stem, each stage and the head, the network's shapes at every choice this part depends on."""
    space, last = network.space, network.space.num_stages
    even_widths = [space.envelope((0,) * last, (width,) * (last + 1)) for width in range(len(space.widths))]
    probes = {"stem": even_widths, "head": even_widths}
    for stage in range(last):
        depths = tuple(space.depths[-1] if other == stage else 0 for other in range(last))
        probes[f"stage{stage + 1}"] = [
            Architecture(depths, (expansion,) * last, (incoming,) * (stage + 1) + (width,) * (last - stage))
            for incoming, width, expansion in product(
                range(len(space.widths)), range(len(space.widths)), space.expansions
            )
        ]
    return {stage: [network.shapes(probe) for probe in architectures] for stage, architectures in probes.items()}


def _tabulate(network: ElasticResNet, probes: dict[str, list[Shapes]], count: CountPairs) -> PartTables:
    """Sum a count of channel pairs over the tensors of every part, for every choice of its shape."""
    sums: dict[Part, Counts] = {}
    for stage, shapes in probes.items():
        for name in (name for name in shapes[0] if part_of(name).stage == stage):
            counted = prod(network.layout.shapes[name][2:]) * count(name, _extents(shapes, name)[:, :2])
            sums[part_of(name)] = sums.get(part_of(name), 0) + counted
    space = network.space
    blocks = [
        [sums[Part(f"stage{stage + 1}", block)] for block in range(space.depths[-1] + 1)]
        for stage in range(space.num_stages)
    ]
    choices = (len(space.widths), len(space.widths), len(space.expansions))
    stages = np.cumsum(blocks, axis=1).reshape(space.num_stages, -1, *choices)
    return PartTables(sums[Part("stem", None)], stages, sums[Part("head", None)])


def _union_steps(extents: Extents) -> Counts:
    """Return the staircase that leading rectangles make together: rows of output start, stop and input channels."""
    stops = np.unique(extents[:, 0])
    starts = np.concatenate([[0], stops])[:-1]
    reach = [extents[extents[:, 0] >= stop, 1].max() for stop in stops]
    return np.stack([starts, stops, reach], axis=1).astype(np.int64)


def _overlap(steps: Counts, extents: Extents) -> Counts:
    """Return the channel pairs that each leading rectangle shares with a staircase."""
    starts, stops, reach = steps.T
    rows = np.clip(extents[:, :1], starts, stops) - starts
    return np.asarray((rows * np.minimum(extents[:, 1:], reach)).sum(axis=1))


def _grid(extents: Extents) -> Counts:
    """Return the cells (output start, stop, input start, stop, ...) between all the bounds of the extents."""
    steps = (pairwise(np.union1d(extents[:, axis], 0)) for axis in range(extents.shape[1]))
    return np.array([[bound for step in cell for bound in step] for cell in product(*steps)], dtype=np.int64)


def _extents(shapes: Sequence[Shapes], name: str, rank: int = 4) -> Extents:
    extents = [_extent(tensors[name], rank) if name in tensors else (0,) * rank for tensors in shapes]
    return np.array(extents, dtype=np.int64).reshape(-1, rank)


def _extent(shape: tuple[int, ...], rank: int = 2) -> tuple[int, ...]:
    """Return the shape with axes of one added up to the rank."""
    return shape + (1,) * (rank - len(shape))
