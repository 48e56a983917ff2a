"""Which positions of the global flat vector a client receives: the paper's map Omega_i (Sec. 3.3)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfeast.networks import Layout, Shapes


@dataclass(frozen=True, eq=False)
class SliceMap:
    """Leading slices of the global tensors; the client's vector holds them in global order."""

    source: Layout  # of the global vector
    layout: Layout  # of the client's vector, without pads

    @classmethod
    def leading(cls, source: Layout, shapes: Shapes) -> "SliceMap":
        """Map the leading slice of each named tensor."""
        return cls(source, Layout.of(shapes))

    @property
    def is_leading(self) -> bool:
        """Whether the client's tensors are the leading slices of the global ones."""
        return True

    @property
    def payload(self) -> int:
        """The number of parameters sent one way, P_i."""
        return self.layout.size

    def gather(self, flat: Tensor) -> Tensor:
        """Return the client's vector: the routed positions of the global one."""
        local = flat.new_empty(self.layout.size)
        for routed, own in self._pairs(flat, local):
            own.copy_(routed)
        return local

    def scatter_(self, flat: Tensor, local: Tensor) -> None:
        """Write the client's values to their global positions."""
        for routed, own in self._pairs(flat, local):
            routed.copy_(own)

    def add_(self, flat: Tensor, local: Tensor, weight: float) -> None:
        """Add the client's weighted values at their global positions, in the global vector's precision."""
        for routed, own in self._pairs(flat, local):
            routed.add_(own.to(flat.dtype), alpha=weight)

    def increment_(self, flat: Tensor, amount: float) -> None:
        """Add the same amount at every routed position."""
        for routed in self.source.views(flat, self.layout.shapes).values():
            routed.add_(amount)

    def index(self) -> Tensor:
        """Return the routed global positions as one sorted int32 vector."""
        return self.pack(self.gather(torch.arange(self.source.size, dtype=torch.int32)))

    def pack(self, local: Tensor) -> Tensor:
        """Return what is sent of a client's vector: one value per position of the index, in its order."""
        return local

    def _pairs(self, flat: Tensor, local: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        routed = self.source.views(flat, self.layout.shapes)
        return zip(routed.values(), self.layout.views(local).values(), strict=True)


@dataclass(frozen=True, eq=False)
class ChosenSlices(SliceMap):
    """Sorted index sets along the first two axes of each tensor, e.g. a window that rolls from round to round."""

    chosen: Mapping[str, tuple[Tensor, ...]]  # tensor -> the indices along its first axes, sorted

    @classmethod
    def of(cls, source: Layout, chosen: Mapping[str, tuple[Tensor, ...]]) -> "ChosenSlices":
        """Map the chosen rows, and columns where a tensor has them, of each named tensor."""
        shapes = {
            name: (*(len(indices) for indices in axes), *source.shapes[name][len(axes) :])
            for name, axes in chosen.items()
        }
        return cls(source, Layout.of(shapes), chosen)

    @property
    def is_leading(self) -> bool:
        """Whether the client's tensors are the leading slices of the global ones; they need not be."""
        return False

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

    def add_(self, flat: Tensor, local: Tensor, weight: float) -> None:
        """Add the client's weighted values at their global positions, in the global vector's precision."""
        for routed, place, own in self._places(flat, local):
            routed[place] += weight * own.to(flat.dtype)

    def increment_(self, flat: Tensor, amount: float) -> None:
        """Add the same amount at every routed position."""
        self.add_(flat, flat.new_ones(self.layout.size), amount)

    def _places(self, flat: Tensor, local: Tensor) -> Iterator[tuple[Tensor, tuple[Tensor, ...], Tensor]]:
        """Yield each global tensor, the places in it that were chosen, and the client's tensor."""
        routed, own = self.source.views(flat), self.layout.views(local)
        for name, axes in self.chosen.items():
            on_device = [indices.to(flat.device) for indices in axes]
            rows = on_device[0].unsqueeze(1) if len(axes) > 1 else on_device[0]
            yield routed[name], (rows, *on_device[1:]), own[name]


@dataclass(frozen=True, eq=False)
class MaskedPositions(SliceMap):
    """Single positions of whole tensors; the client's vector has the global layout, zero where nothing was sent."""

    mask: Tensor  # bool, of the global layout

    @classmethod
    def of(cls, source: Layout, mask: Tensor) -> "MaskedPositions":
        """Map the positions where the mask is true."""
        return cls(source, source, mask)

    @property
    def is_leading(self) -> bool:
        """Whether the client's tensors are the leading slices of the global ones; parts of them are missing."""
        return False

    @property
    def payload(self) -> int:
        """The number of parameters sent one way."""
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
        """Return what is sent of a client's vector: one value per position of the index, in its order."""
        return local[self._mask_for(local)]

    def _mask_for(self, values: Tensor) -> Tensor:
        return self.mask.to(values.device)
