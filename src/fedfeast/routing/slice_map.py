"""Which positions of the global flat vector a client receives: the paper's map Omega_i (Sec. 3.3)."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfeast.networks import Layout, Shapes


@dataclass(frozen=True, eq=False)
class SliceMap:
    """Leading slices of the global tensors; the client's compact vector holds them in global order."""

    source: Layout  # of the global vector
    layout: Layout  # of the compact vector, without pads

    @classmethod
    def leading(cls, source: Layout, shapes: Shapes) -> "SliceMap":
        """Map the leading slice of each named tensor."""
        return cls(source, Layout.of(shapes))

    @property
    def payload(self) -> int:
        """The number of parameters sent one way, P_i."""
        return self.layout.size

    def gather(self, flat: Tensor) -> Tensor:
        """Return the compact vector of the routed positions."""
        compact = flat.new_empty(self.layout.size)
        for routed, local in self._pairs(flat, compact):
            local.copy_(routed)
        return compact

    def scatter_(self, flat: Tensor, compact: Tensor) -> None:
        """Write the compact values to their global positions."""
        for routed, local in self._pairs(flat, compact):
            routed.copy_(local)

    def add_(self, flat: Tensor, compact: Tensor, weight: float) -> None:
        """Add the weighted compact values at their global positions, in the global vector's precision."""
        for routed, local in self._pairs(flat, compact):
            routed.add_(local.to(flat.dtype), alpha=weight)

    def increment_(self, flat: Tensor, amount: float) -> None:
        """Add the same amount at every routed position."""
        for routed in self.source.views(flat, self.layout.shapes).values():
            routed.add_(amount)

    def index(self) -> Tensor:
        """Return the routed global positions as one sorted int32 vector."""
        return self.gather(torch.arange(self.source.size, dtype=torch.int32))

    def _pairs(self, flat: Tensor, compact: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        routed = self.source.views(flat, self.layout.shapes)
        return zip(routed.values(), self.layout.views(compact).values(), strict=True)
