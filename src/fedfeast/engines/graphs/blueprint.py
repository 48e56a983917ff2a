"""What every lane needs to know of an architecture: where its weights come from and its gradients go."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfeast.engines.graphs.gradient_plan import GradientPlan
from fedfeast.networks import Layout, Network
from fedfeast.networks.layout import Shapes, stored_axes
from fedfeast.routing import SliceMap

CHUNK = 8  # neighbouring positions that kernels move together, where channels come in multiples of it
# Partial gradients added at once -> positions of a program. Eight to thirty-two values a thread would be as few
# programs, and with four times the registers too few of them at a time to keep memory busy.
PARTS_TO_SIZE = {1: 1024, 8: 128, 32: 32}


@dataclass(frozen=True, eq=False)
class Blueprint:
    """An architecture's compact vector, the positions it is gathered from, the places of its gradients."""

    architecture: Hashable
    layout: Layout  # of the compact vector: convolutions, which are rounded, then all others
    num_rounded: int  # positions of the compact vector that hold convolutions
    index: Tensor  # int32: for each chunk of the compact vector one of the full vector, -1 for a pad
    plan: GradientPlan
    # (programs, 5) int32: start in the compact vector, count, start of the partials, parts, size of a part
    table: Tensor

    def weights(self, low: Tensor, full: Tensor) -> dict[str, Tensor]:
        """Return every tensor as a view: convolutions of the rounded vector, all others of the whole one."""
        shapes = self.layout.shapes
        rounded = {name: shape for name, shape in shapes.items() if len(shape) == 4}
        others = {name: shape for name, shape in shapes.items() if len(shape) != 4}
        behind = {name: self.layout.offsets[name] - self.num_rounded for name in others}
        views = self.layout.views(low, rounded) | Layout(behind, others, self.layout.size).views(full)
        return {name: views[name] for name in shapes}


def chunk_of(source: Layout, all_shapes: Iterable[Shapes]) -> int:
    """Return the largest chunk that no slice tears: CHUNK, or single positions."""
    whole = all(
        source.offsets[name] % CHUNK == 0 and _fits(shape, source.shapes[name])
        for shapes in all_shapes
        for name, shape in shapes.items()
    )
    return CHUNK if whole else 1


def compact_layout(shapes: Shapes) -> tuple[Layout, int]:
    """Return the layout of a compact vector, and how many of its positions hold convolutions: they come first."""
    convolutions = {name: shape for name, shape in shapes.items() if len(shape) == 4}
    return Layout.of(convolutions | dict(shapes), CHUNK), _padded(Layout.of(convolutions, CHUNK).size, CHUNK)


def make_blueprint(
    network: Network, architecture: Hashable, plan: GradientPlan, chunk: int, device: torch.device
) -> Blueprint:
    """Draw up the blueprint of an architecture."""
    shapes = network.shapes(architecture)
    layout, num_rounded = compact_layout(shapes)
    positions = torch.arange(network.layout.size, dtype=torch.int32, device=device)
    routed = network.layout.views(positions, shapes)
    index = torch.full((_padded(layout.size, CHUNK),), -1, dtype=torch.int32, device=device)
    for name, local in layout.views(index).items():
        local.copy_(routed[name])
    first = index.view(-1, chunk)[:, 0]
    index = torch.where(first >= 0, first // chunk, -1).contiguous()
    return Blueprint(architecture, layout, num_rounded, index, plan, _table(layout, plan).to(device))


def active_positions(network: Network, architectures: Iterable[Hashable], chunk: int, device: torch.device) -> Tensor:
    """Return the chunks of the full vector that any of the architectures uses, sorted, int32."""
    return _used_chunks(network.layout, [network.shapes(one) for one in architectures], chunk, device)


def passive_positions(slice_map: SliceMap, active: Tensor, chunk: int) -> Tensor:
    """Return the chunks that a client received but never uses: they only decay."""
    shapes = slice_map.layout.shapes
    assert chunk_of(slice_map.source, [shapes]) >= chunk, "a slice that tears chunks"
    routed = _used_chunks(slice_map.source, [shapes], chunk, active.device)
    return routed[~torch.isin(routed, active, assume_unique=True)]


def tensor_ranges(layout: Layout, index: Tensor, chunk: int) -> dict[str, tuple[int, int]]:
    """Return which entries of a sorted index of chunks lie in each tensor: from where to where."""
    names = sorted(layout.offsets, key=lambda name: layout.offsets[name])
    starts = torch.tensor([layout.offsets[name] // chunk for name in names], dtype=index.dtype, device=index.device)
    bounds = [*torch.searchsorted(index, starts).tolist(), index.numel()]
    return {name: bound for name, bound in zip(names, pairwise(bounds), strict=True)}


def joined_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same ranges with neighbours joined and empty ones left out."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        elif stop > start:
            joined.append((start, stop))
    return joined


def _used_chunks(layout: Layout, all_shapes: Iterable[Shapes], chunk: int, device: torch.device) -> Tensor:
    used = torch.zeros(_padded(layout.size, chunk), dtype=torch.bool, device=device)
    for shapes in all_shapes:
        for view in layout.views(used, shapes).values():
            view.fill_(True)
    return used.view(-1, chunk).any(dim=1).nonzero().squeeze(1).to(torch.int32)


def _fits(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    """Return whether a leading slice consists of whole chunks, pads behind the tensor left out."""
    if shape == full:
        return True
    part, whole = ([one[axis] for axis in stored_axes(len(full))] for one in (shape, full))
    cut = max(axis for axis in range(len(full)) if part[axis] != whole[axis])  # the last that is sliced
    # Neighbouring positions run up to the cut, and runs begin a row of the whole tensor apart.
    run, row, is_single_run = part[cut] * prod(whole[cut + 1 :]), prod(whole[cut:]), prod(part[:cut]) == 1
    return run % CHUNK == 0 and (is_single_run or row % CHUNK == 0)


def _padded(size: int, chunk: int) -> int:
    return -(-size // chunk) * chunk


def parts_at_once(parts: int) -> int:
    """Return how many of a tensor's partial gradients a program adds up at once."""
    return next((most for most in PARTS_TO_SIZE if parts <= most), max(PARTS_TO_SIZE))


def _table(layout: Layout, plan: GradientPlan) -> Tensor:
    columns: list[list[NDArray[np.int32]]] = [[] for _ in range(5)]
    # Those with many parts first: they take the longest.
    for name, place in sorted(plan.places.items(), key=lambda item: -item[1].parts):
        size = PARTS_TO_SIZE[parts_at_once(place.parts)]
        offsets = np.arange(0, place.size, size, dtype=np.int32)
        of_programs = (
            layout.offsets[name] + offsets, np.minimum(size, place.size - offsets), place.start + offsets,
            np.full_like(offsets, place.parts), np.full_like(offsets, place.size),
        )  # fmt: skip
        for column, values in zip(columns, of_programs, strict=True):
            column.append(values)
    return torch.from_numpy(np.stack([np.concatenate(column) for column in columns], axis=1).astype(np.int32))
