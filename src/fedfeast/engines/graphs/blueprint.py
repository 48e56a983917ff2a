"""What every lane needs to know of an architecture: where its weights come from and its gradients go."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfeast.engines.graphs.gradient_plan import GradientPlan
from fedfeast.networks import Layout, Network
from fedfeast.routing import SliceMap

ALIGNMENT = 8  # elements: sixteen bytes of bfloat16
MANY_PARTS = 4


@dataclass(frozen=True, eq=False)
class Table:
    """Rows (start in the index, count, start of the partials, parts, size of a part): one program's work each."""

    rows: Tensor  # (programs, 5) int32
    size: int  # positions of a program, at most
    parts_at_once: int


@dataclass(frozen=True, eq=False)
class Blueprint:
    """An architecture's compact vector, the positions it is gathered from, the places of its gradients."""

    architecture: Hashable
    layout: Layout  # of the compact vector
    index: Tensor  # (layout.size,) int32: positions in the full vector, -1 for pads
    plan: GradientPlan
    tables: tuple[Table, ...]


def make_blueprint(network: Network, architecture: Hashable, plan: GradientPlan, device: torch.device) -> Blueprint:
    """Draw up the blueprint of an architecture."""
    shapes = network.shapes(architecture)
    layout = Layout.of(shapes, ALIGNMENT)
    positions = torch.arange(network.layout.size, dtype=torch.int32, device=device)
    index = torch.full((layout.size,), -1, dtype=torch.int32, device=device)
    routed = network.layout.views(positions, shapes)
    for name, local in layout.views(index).items():
        local.copy_(routed[name])
    few = {name: place for name, place in plan.places.items() if place.parts <= MANY_PARTS}
    many = {name: place for name, place in plan.places.items() if place.parts > MANY_PARTS}
    tables = (
        Table(_rows(layout, plan, few, 1024).to(device), 1024, MANY_PARTS),
        Table(_rows(layout, plan, many, 256).to(device), 256, 32),
    )
    return Blueprint(architecture, layout, index, plan, tuple(table for table in tables if len(table.rows)))


def active_positions(network: Network, architectures: Iterable[Hashable], device: torch.device) -> Tensor:
    """Return the sorted positions of the full vector that any of the architectures uses, int32."""
    used = torch.zeros(network.layout.size, dtype=torch.bool, device=device)
    for architecture in architectures:
        for view in network.layout.views(used, network.shapes(architecture)).values():
            view.fill_(True)
    return used.nonzero().squeeze(1).to(torch.int32)


def passive_positions(slice_map: SliceMap, active: Tensor) -> Tensor:
    """Return the sorted positions that a client received but never uses: they only decay."""
    routed = torch.zeros(slice_map.source.size, dtype=torch.bool, device=active.device)
    for view in slice_map.source.views(routed, slice_map.layout.shapes).values():
        view.fill_(True)
    routed[active.long()] = False
    return routed.nonzero().squeeze(1).to(torch.int32)


def _rows(layout: Layout, plan: GradientPlan, names: Iterable[str], size: int) -> Tensor:
    rows = []
    for name in names:
        place = plan.places[name]
        for offset in range(0, place.size, size):
            count = min(size, place.size - offset)
            rows.append((layout.offsets[name] + offset, count, place.start + offset, place.parts, place.size))
    return torch.tensor(rows, dtype=torch.int32).reshape(-1, 5)
