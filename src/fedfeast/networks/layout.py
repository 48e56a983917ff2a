"""Where each tensor of a network lies in one flat vector."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

ALIGNMENT = 32  # elements: 128 bytes in float32, what vector loads of any device want

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Layout:
    """Names to offsets and shapes of any rank; convolutions (out, in, k, k) are stored as (out, k, k, in)."""

    offsets: Mapping[str, int]
    shapes: Shapes
    size: int  # of the flat vector, pads included

    @classmethod
    def of(cls, shapes: Shapes, alignment: int = 1) -> "Layout":
        """Lay the tensors out one after another, each offset a multiple of the alignment."""
        offsets, end = {}, 0
        for name, shape in shapes.items():
            offsets[name] = -(-end // alignment) * alignment
            end = offsets[name] + prod(shape)
        return cls(offsets, dict(shapes), end)

    @property
    def num_parameters(self) -> int:
        """The scalars that are parameters, pads left out."""
        return sum(prod(shape) for shape in self.shapes.values())

    def views(self, flat: Tensor, shapes: Shapes | None = None) -> dict[str, Tensor]:
        """Return each tensor as a view of the flat vector, or its leading slice of the given shape."""
        return {
            name: self._leading_slice(flat, name, shape)
            for name, shape in (self.shapes if shapes is None else shapes).items()
        }

    def zeros(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
        """Return a flat vector of zeros for this layout."""
        return torch.zeros(self.size, dtype=dtype, device=device)

    def _leading_slice(self, flat: Tensor, name: str, shape: tuple[int, ...]) -> Tensor:
        full = self.shapes[name]
        assert all(part <= whole for part, whole in zip(shape, full, strict=True)), (name, shape, full)
        start = flat.storage_offset() + self.offsets[name]
        return flat.as_strided(shape, _strides(full), start)


def stored_axes(rank: int) -> tuple[int, ...]:
    """Return torch's axes in the order they are stored in: row-major, but with the input axis of a convolution last."""
    return (0, 2, 3, 1) if rank == 4 else tuple(range(rank))


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides in torch's axis order."""
    stored, strides = stored_axes(len(shape)), [0] * len(shape)
    for place, axis in enumerate(stored):
        strides[axis] = prod(shape[later] for later in stored[place + 1 :])
    return tuple(strides)
