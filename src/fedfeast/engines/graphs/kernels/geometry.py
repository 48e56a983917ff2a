"""Which pixel lies under each tap of a convolution, as tables that kernels look up."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Geometry:
    """For every output pixel of a batch: where its taps lie on the input."""

    origin: Tensor  # (output pixels,) int32: the input pixel under the first tap, counted on where that lies outside
    inside: Tensor  # (output pixels,) int32: one bit per tap, set where it lies on a pixel of the image


@cache  # for good: captured graphs hold the addresses of these tables
def geometry_of(batch: int, height: int, width: int, stride: int, kernel: int, device: torch.device) -> Geometry:
    """Return the tables of a convolution padded to keep its input's size at stride 1."""
    top = torch.arange((height - 1) // stride + 1)[:, None] * stride - kernel // 2
    left = torch.arange((width - 1) // stride + 1) * stride - kernel // 2
    images = torch.arange(batch)[:, None, None]
    origin = (images * height + top) * width + left
    inside = torch.zeros_like(origin)
    for tap in range(kernel * kernel):
        row, column = top + tap // kernel, left + tap % kernel
        inside |= ((row >= 0) & (row < height) & (column >= 0) & (column < width)).long() << tap
    geometry = Geometry(*(table.reshape(-1).to(device, torch.int32) for table in (origin, inside)))
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()  # other streams will read them without asking
    return geometry
