"""Networks of one supernet that begin with the same blocks: what they share of a pass is computed once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedfeast.federation import Deployed, OperatingPoint
from fedfeast.networks import Architecture, ElasticResNet
from fedfeast.networks.layers import Layers


@dataclass(frozen=True, eq=False)
class PrefixGroup:
    """Networks that go through a batch one after the other, each from where it parts from those before it."""

    networks: tuple[Deployed, ...]
    shared: tuple[int, ...]  # how many parts, its stem and blocks, each has in common with the one before it
    kept: tuple[frozenset[int], ...]  # after how many parts of each what later ones go on with is to be kept

    @classmethod
    def of(cls, networks: Sequence[Deployed]) -> "PrefixGroup":
        """Group networks that were taken out of one global vector; neighbours should have most in common."""
        shared = (0, *map(_count_shared, networks, networks[1:]))
        return cls(tuple(networks), shared, tuple(_parting_places(shared[place:]) for place in range(len(shared))))

    def outputs(self, inputs: Tensor, layers: Sequence[Layers]) -> Iterator[Tensor]:
        """Yield what ``Deployed`` returns of normalised inputs, network by network, each with its own layers.

        A network's layers are asked for the parts alone that it does not share with the one before it.
        """
        prefixes = list[tuple[int, Tensor]]()  # how many parts, and the features after them
        for deployed, own, shared, kept in zip(self.networks, layers, self.shared, self.kept, strict=True):
            while prefixes and prefixes[-1][0] > shared:
                prefixes.pop()
            if not shared and not kept:
                yield deployed(inputs, own)
                continue
            network, architecture = deployed.network, deployed.architecture
            assert isinstance(network, ElasticResNet)
            assert isinstance(architecture, Architecture)
            done, features = prefixes[-1] if shared else (1, network.stem(deployed.weights, inputs, own))
            assert done == max(shared, 1), "what the next network goes on with was not kept"
            for block in list(network.blocks(architecture))[done - 1 :]:
                if done in kept:
                    prefixes.append((done, features))
                features, done = network.block(deployed.weights, block, features, own), done + 1
            if done in kept:
                prefixes.append((done, features))
            yield network.head(deployed.weights, features, own)


def group_alike(points: Sequence[OperatingPoint]) -> list[list[OperatingPoint]]:
    """Return the points in groups that begin with the same stem and blocks, neighbours with most in common."""
    groups: dict[Any, list[OperatingPoint]] = {}
    for point in sorted(points, key=lambda point: _choices(point.architecture)):
        groups.setdefault(_choices(point.architecture)[:3] or point.name, []).append(point)
    return list(groups.values())


def _choices(architecture: object) -> tuple[float, ...]:
    """Return what an elastic ResNet is made by, in forward order; nothing of other networks."""
    if not isinstance(architecture, Architecture):
        return ()
    stages = zip(architecture.width_indices[1:], architecture.expansions, architecture.depths, strict=True)
    return (architecture.width_indices[0], *(choice for stage in stages for choice in stage))


def _count_shared(one: Deployed, other: Deployed) -> int:
    """Return how many parts two networks begin with that have the same tensors."""
    if one.network != other.network or not (one.is_sliced and other.is_sliced):
        return 0
    count = 0
    for mine, theirs in zip(_parts(one), _parts(other), strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _parts(deployed: Deployed) -> tuple[object, ...]:
    """Return what decides the tensors of every part, given those before it."""
    network, architecture = deployed.network, deployed.architecture
    if not isinstance(network, ElasticResNet) or not isinstance(architecture, Architecture):
        return ()
    return (network.space.stem_width(architecture), *network.blocks(architecture))


def _parting_places(shared: Sequence[int]) -> frozenset[int]:
    """Return after how many parts of the first network others go on, given what each shares with the one before it."""
    places, least = set[int](), None
    for count in shared[1:]:
        least = count if least is None else min(least, count)
        places.add(least)
    return frozenset(place for place in places if place > shared[0])
