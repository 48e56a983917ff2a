"""Which positions of the global flat vector a client receives: the paper's map Omega_i (Sec. 3.3)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import EllipsisType
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from fedfeast.networks import Layout, Shapes

Arrays = Mapping[str, Tensor]
Place = EllipsisType | tuple[Tensor, ...]  # all of a tensor, or the indices along its first axes


class SliceMap(ABC):
    """A client's positions of the global vector, and the client's own vector that holds their values.

    What is sent of a client's vector is packed: one value per position of the index, in its order.
    """

    kind: ClassVar[str]  # by which a description names it
    is_leading: ClassVar[bool]  # whether the client's tensors are the leading slices of the global ones
    source: Layout  # of the global vector
    layout: Layout  # of the client's vector

    @staticmethod
    def leading(source: Layout, shapes: Shapes) -> "SliceMap":
        """Map leading slices: what ``LeadingSlices.of`` was called in the first release."""
        return LeadingSlices.of(source, shapes)

    @property
    @abstractmethod
    def payload(self) -> int:
        """The number of parameters sent one way, P_i."""

    @abstractmethod
    def gather(self, flat: Tensor) -> Tensor:
        """Return the client's vector: the routed positions of the global one."""

    @abstractmethod
    def scatter_(self, flat: Tensor, local: Tensor) -> None:
        """Write the client's values to their global positions."""

    @abstractmethod
    def add_(self, flat: Tensor, local: Tensor, weight: float) -> None:
        """Add the client's weighted values at their global positions, in the global vector's precision."""

    @abstractmethod
    def increment_(self, flat: Tensor, amount: float) -> None:
        """Add the same amount at every routed position."""

    @abstractmethod
    def pack(self, local: Tensor) -> Tensor:
        """Return what is sent of a client's vector."""

    @abstractmethod
    def unpack(self, packed: Tensor) -> Tensor:
        """Return the client's vector, given what was sent of it."""

    @abstractmethod
    def tensor_sizes(self) -> list[int]:
        """Return how many of the packed values belong to each tensor, in their order."""

    @abstractmethod
    def describe(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return plain values and arrays from which ``read_slice_map`` makes the same map."""

    @classmethod
    @abstractmethod
    def from_description(cls, source: Layout, content: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the map of a description."""

    def index(self) -> Tensor:
        """Return the routed global positions as one sorted int32 vector."""
        return self.pack(self.gather(torch.arange(self.source.size, dtype=torch.int32)))


class CompactSlices(SliceMap):
    """Maps whose client's vector holds what is sent and nothing else, in global order and without pads."""

    @property
    def payload(self) -> int:
        """The number of parameters sent one way, P_i."""
        return self.layout.size

    def pack(self, local: Tensor) -> Tensor:
        """Return the client's vector as it is."""
        return local

    def unpack(self, packed: Tensor) -> Tensor:
        """Return what was sent as it is."""
        return packed

    def tensor_sizes(self) -> list[int]:
        """Return the sizes of the client's tensors."""
        return [prod(shape) for shape in self.layout.shapes.values()]

    def gather(self, flat: Tensor) -> Tensor:
        """Return the client's vector: the routed positions of the global one."""
        local = flat.new_empty(self.layout.size)
        for routed, place, own in self._places(flat, local):
            own.copy_(routed[place])
        return local

    def scatter_(self, flat: Tensor, local: Tensor) -> None:
        """Write the client's values to their global positions."""
        for routed, place, own in self._places(flat, local):
            routed[place] = own

    @abstractmethod
    def _places(self, flat: Tensor, local: Tensor) -> Iterator[tuple[Tensor, Place, Tensor]]:
        """Yield each routed tensor of the global vector, where in it, and the client's tensor."""


@dataclass(frozen=True, eq=False)
class LeadingSlices(CompactSlices):
    """Leading slices of the global tensors."""

    kind = "leading"
    is_leading = True
    source: Layout
    layout: Layout

    @classmethod
    def of(cls, source: Layout, shapes: Shapes) -> Self:
        """Map the leading slice of each named tensor."""
        return cls(source, Layout.of(shapes))

    def add_(self, flat: Tensor, local: Tensor, weight: float) -> None:
        """Add the client's weighted values at their global positions, in the global vector's precision."""
        for routed, _, own in self._places(flat, local):
            routed.add_(own.to(flat.dtype), alpha=weight)

    def increment_(self, flat: Tensor, amount: float) -> None:
        """Add the same amount at every routed position."""
        for routed in self.source.views(flat, self.layout.shapes).values():
            routed.add_(amount)

    def describe(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the shapes."""
        return {"kind": self.kind, "shapes": [[name, shape] for name, shape in self.layout.shapes.items()]}, {}

    @classmethod
    def from_description(cls, source: Layout, content: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the map of these shapes."""
        return cls.of(source, {name: tuple(shape) for name, shape in content["shapes"]})

    def _places(self, flat: Tensor, local: Tensor) -> Iterator[tuple[Tensor, Place, Tensor]]:
        routed = self.source.views(flat, self.layout.shapes)
        for one, own in zip(routed.values(), self.layout.views(local).values(), strict=True):
            yield one, ..., own


@dataclass(frozen=True, eq=False)
class ChosenSlices(CompactSlices):
    """Sorted index sets along the first two axes of each tensor, e.g. a window that rolls from round to round."""

    kind = "chosen"
    is_leading = False
    source: Layout
    layout: Layout
    chosen: Mapping[str, tuple[Tensor, ...]]  # tensor -> the indices along its first axes, sorted

    @classmethod
    def of(cls, source: Layout, chosen: Mapping[str, tuple[Tensor, ...]]) -> Self:
        """Map the chosen rows, and columns where a tensor has them, of each named tensor."""
        shapes = {
            name: (*(len(indices) for indices in axes), *source.shapes[name][len(axes) :])
            for name, axes in chosen.items()
        }
        return cls(source, Layout.of(shapes), chosen)

    def gather(self, flat: Tensor) -> Tensor:
        """Return the client's vector: the routed positions of the global one."""
        return flat.index_select(0, self._positions(flat.device))

    def scatter_(self, flat: Tensor, local: Tensor) -> None:
        """Write the client's values to their global positions."""
        flat.index_copy_(0, self._positions(flat.device), local)

    def add_(self, flat: Tensor, local: Tensor, weight: float) -> None:
        """Add the client's weighted values at their global positions, in the global vector's precision."""
        flat.index_add_(0, self._positions(flat.device), weight * local.to(flat.dtype))

    def increment_(self, flat: Tensor, amount: float) -> None:
        """Add the same amount at every routed position."""
        flat.index_add_(0, self._positions(flat.device), flat.new_full((self.layout.size,), amount))

    def describe(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return how many indices each axis has, and all indices."""
        axes = [[name, [len(indices) for indices in chosen]] for name, chosen in self.chosen.items()]
        indices = torch.cat([one.cpu() for chosen in self.chosen.values() for one in chosen])
        return {"kind": self.kind, "axes": axes}, {"indices": indices.to(torch.int32)}

    @classmethod
    def from_description(cls, source: Layout, content: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the map of these indices."""
        lengths = [length for _, axes in content["axes"] for length in axes]
        parts = iter(torch.split_with_sizes(arrays["indices"].long(), lengths))
        return cls.of(source, {name: tuple(next(parts) for _ in axes) for name, axes in content["axes"]})

    def _positions(self, device: torch.device) -> Tensor:
        """Return the routed positions in the order of the client's vector, found once for a device.

        With them a vector is one operation; tensor by tensor it would be some hundred, of which each waits for its
        indices to reach the device.
        """
        if device not in self._found:
            self._found[device] = super().gather(torch.arange(self.source.size, device=device))
        return self._found[device]

    @cached_property
    def _found(self) -> dict[torch.device, Tensor]:
        return {}

    def _places(self, flat: Tensor, local: Tensor) -> Iterator[tuple[Tensor, Place, Tensor]]:
        routed, own = self.source.views(flat), self.layout.views(local)
        all_indices = [indices for axes in self.chosen.values() for indices in axes]
        together, lengths = torch.cat(all_indices).to(flat.device), [len(one) for one in all_indices]
        on_device = iter(torch.split_with_sizes(together, lengths))
        for name, axes in self.chosen.items():
            rows, *others = (next(on_device) for _ in axes)
            yield routed[name], (rows.unsqueeze(1) if others else rows, *others), own[name]


@dataclass(frozen=True, eq=False)
class MaskedPositions(SliceMap):
    """Single positions of whole tensors; the client's vector has the global layout, zero where nothing was sent."""

    kind = "masked"
    is_leading = False
    source: Layout
    layout: Layout
    mask: Tensor  # bool, of the global layout

    @classmethod
    def of(cls, source: Layout, mask: Tensor) -> Self:
        """Map the positions where the mask is true."""
        return cls(source, source, mask)

    @property
    def payload(self) -> int:
        """The number of parameters sent one way, P_i."""
        return int(self.mask.sum())

    def gather(self, flat: Tensor) -> Tensor:
        """Return the client's vector: the global one, zero where nothing was sent."""
        return torch.where(self._mask_for(flat), flat, torch.zeros((), dtype=flat.dtype, device=flat.device))

    def scatter_(self, flat: Tensor, local: Tensor) -> None:
        """Write the client's values to the positions that were sent."""
        flat.copy_(torch.where(self._mask_for(flat), local, flat))

    def add_(self, flat: Tensor, local: Tensor, weight: float) -> None:
        """Add the client's weighted values at the positions that were sent, in the global vector's precision."""
        flat.add_(self.gather(local).to(flat.dtype), alpha=weight)

    def increment_(self, flat: Tensor, amount: float) -> None:
        """Add the same amount at every position that was sent."""
        flat.add_(self._mask_for(flat), alpha=amount)

    def pack(self, local: Tensor) -> Tensor:
        """Return the values where the mask is true."""
        return local[self._mask_for(local)]

    def unpack(self, packed: Tensor) -> Tensor:
        """Return the client's vector, given what was sent of it; zero where nothing was."""
        local = packed.new_zeros(self.layout.size)
        local[self._mask_for(packed)] = packed
        return local

    def tensor_sizes(self) -> list[int]:
        """Return how many positions of each tensor were sent."""
        return [int(view.sum()) for view in self.layout.views(self.mask).values()]

    def describe(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the mask, a bit per position."""
        return {"kind": self.kind}, {"mask": torch.from_numpy(np.packbits(self.mask.cpu().numpy()))}

    @classmethod
    def from_description(cls, source: Layout, content: Mapping[str, Any], arrays: Arrays) -> Self:
        """Return the map of this mask."""
        bits = np.unpackbits(arrays["mask"].numpy(), count=source.size)
        return cls.of(source, torch.from_numpy(bits).to(torch.bool))

    def _mask_for(self, values: Tensor) -> Tensor:
        return self.mask.to(values.device)


KINDS: dict[str, type[SliceMap]] = {one.kind: one for one in (LeadingSlices, ChosenSlices, MaskedPositions)}


def read_slice_map(source: Layout, content: Mapping[str, Any], arrays: Arrays) -> SliceMap:
    """Return the map that described itself so, given the layout of the global vector."""
    return KINDS[content["kind"]].from_description(source, content, arrays)
