"""Vectors as few bytes: bfloat16 and int8 by stochastic rounding, or the largest values alone (docs/decisions/041)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedfeast.federation.aggregation.refusals import find_form_fault
from fedfeast.hashed_bits import STEPS, hashed_bits

Format = Literal["lossless", "float32", "bfloat16", "int8"]
Arrays = Mapping[str, Tensor]
# Choice: values that share an int8 scale. Shorter blocks cost bytes (4 a block), longer ones precision.
BLOCK = 256
LEVELS = 127  # of int8 either side of zero; -128 is never sent, so that both sides are alike
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.int8}


class WireFault(ValueError):
    """Arrays that do not say what they should; the text says what is wrong."""


@dataclass(frozen=True)
class Packing:
    """How a vector of values travels: in which format, and which share of it."""

    form: Format = "lossless"
    share: float | None = None  # of the values, the largest ones; the others arrive as zeros

    @property
    def is_lossless(self) -> bool:
        """Whether every bit arrives."""
        return self.form == "lossless" and self.share is None

    @property
    def rounding(self) -> float:
        """By how much rounding can lengthen a vector, as a share of its norm."""
        # A step of a block is its largest value over 127, and each of its values may be off by a step.
        steps: dict[str, float] = {"int8": sqrt(BLOCK) / LEVELS, "bfloat16": 2**-7, "float32": 2**-23}
        return steps.get(self.form, 0.0)

    def count(self, size: int) -> int:
        """Return how many of so many values are sent."""
        return size if self.share is None else min(size, max(1, ceil(round(self.share * size, 6))))

    def most_bytes(self, sizes: Sequence[int], weights: torch.dtype) -> int:
        """Return the bytes of a vector, given the sizes of its tensors: exactly, or at most where a share is sent."""
        size = sum(sizes)
        count = self.count(size)
        total = count * self._dtype(weights).itemsize
        if self.form == "int8":
            blocks = sum(ceil(one / BLOCK) for one in sizes)
            total += 4 * (blocks if self.share is None else min(blocks, count))
        if self.share is not None:
            total += 4 * count if _is_listed(count, size) else ceil(size / 8)
        return total

    def encode(self, values: Tensor, sizes: Sequence[int], key: int) -> dict[str, Tensor]:
        """Return a vector as arrays, given the sizes of the tensors that it is made of; the key decides on rounding."""
        if self.share is None:
            return self._encode(values, sizes, key)
        chosen = _largest(values, self.count(values.numel()))
        arrays = self._encode(values[chosen], _sizes_among(chosen, sizes), key)
        return {**arrays, **_put_positions(chosen, values.numel())}

    def decode(self, arrays: Arrays, sizes: Sequence[int], weights: torch.dtype) -> Tensor:
        """Return the vector that arrays stand for, in the weights' precision; they must be as ``encode`` makes them."""
        if self.share is None:
            return self._decode(arrays, sizes, weights)
        size = sum(sizes)
        chosen = _take_positions(arrays, self.count(size), size)
        values = torch.zeros(size, dtype=weights, device=arrays["values"].device)
        values[chosen] = self._decode(arrays, _sizes_among(chosen, sizes), weights)
        return values

    def read(self, arrays: Arrays, sizes: Sequence[int], weights: torch.dtype) -> Tensor:
        """Return the vector of somebody else's arrays; anything but what ``encode`` makes is refused."""
        size, among = sum(sizes), sizes
        count = self.count(size)
        expected = {"values": _form(count, self._dtype(weights))}
        if self.share is not None:
            listed = _is_listed(count, size)
            name, form = ("positions", _form(count, torch.int32)) if listed else ("mask", _form(ceil(size / 8)))
            expected[name] = form
            _require({name: form}, {key: one for key, one in arrays.items() if key == name})
            among = _sizes_among(_checked(_take_positions(arrays, count, size), count, size), sizes)
        if self.form == "int8":
            expected["scales"] = _form(sum(ceil(one / BLOCK) for one in among), torch.float32)
        _require(expected, arrays)
        if self.form == "int8":
            _require_scales(arrays)
        return self.decode(arrays, sizes, weights)

    def _dtype(self, weights: torch.dtype) -> torch.dtype:
        return _DTYPES.get(self.form, weights)

    def _encode(self, values: Tensor, sizes: Sequence[int], key: int) -> dict[str, Tensor]:
        if self.form == "bfloat16":
            return {"values": round_to_bfloat16(values, key)}
        if self.form == "int8":
            rounded, scales = round_to_int8(values, sizes, key)
            return {"values": rounded, "scales": scales}
        return {"values": values.to(self._dtype(values.dtype))}

    def _decode(self, arrays: Arrays, sizes: Sequence[int], weights: torch.dtype) -> Tensor:
        values = arrays["values"].to(weights)
        if self.form != "int8":
            return values
        return values * _by_value(arrays["scales"].to(weights), _blocks(sizes).to(values.device), values.numel())


def round_to_bfloat16(values: Tensor, key: int) -> Tensor:
    """Round to one of the two neighbours in bfloat16, to the nearer one more often: right on average."""
    most = torch.finfo(torch.bfloat16).max  # beyond it a neighbour would be infinite
    bits = values.float().clamp(-most, most).view(torch.int32)
    # The last 16 bits are what bfloat16 leaves out: adding 16 random ones carries as often as they are large.
    return ((bits + (_drawn(values, key).to(torch.int32) & 0xFFFF)) & ~0xFFFF).view(torch.float32).to(torch.bfloat16)


def round_to_int8(values: Tensor, sizes: Sequence[int], key: int) -> tuple[Tensor, Tensor]:
    """Round to whole steps of a block's scale, right on average; return the numbers of steps and the scales."""
    # Choice: no block reaches over two tensors: a norm's scales near 1 would drown the small weights beside them.
    blocks = _blocks(sizes).to(values.device)
    if not values.numel():
        return values.to(torch.int8), values.new_zeros(0, dtype=torch.float32)
    peaks = torch.segment_reduce(values.abs(), "max", lengths=blocks)
    scales = (peaks / LEVELS).float()
    steps = _by_value(scales.to(values.dtype), blocks, values.numel())
    upwards = (_drawn(values, key).to(values.dtype) + (STEPS + 1) / 2) / STEPS  # within 0 and 1, 1/2 in the mean
    counted = torch.floor(torch.where(steps > 0, values / steps, 0) + upwards)
    # Not finite where training diverged: the scale says so, and whoever reads it refuses it.
    return counted.nan_to_num(0, 0, 0).clamp(-LEVELS, LEVELS).to(torch.int8), scales


def _drawn(values: Tensor, key: int) -> Tensor:
    """Return 16 random bits for every value."""
    return hashed_bits(torch.tensor(key, device=values.device), values.numel())


def _by_value(scales: Tensor, blocks: Tensor, count: int) -> Tensor:
    """Return each value's scale, given each block's, the blocks' lengths and their sum."""
    return scales.repeat_interleave(blocks, output_size=count)


def _blocks(sizes: Sequence[int]) -> Tensor:
    """Return the lengths of the blocks that tensors of these sizes are cut into."""
    own = np.asarray([size for size in sizes if size], dtype=np.int64)
    counts = -(-own // BLOCK)
    lengths = np.full(counts.sum(), BLOCK)
    lengths[counts.cumsum() - 1] = own - BLOCK * (counts - 1)  # a tensor's last block is what is left of it
    return torch.from_numpy(lengths)


def _largest(values: Tensor, count: int) -> Tensor:
    """Return the positions of the largest values, sorted."""
    # Choice: over the whole slice, not tensor by tensor: what a layer does not need another one gets.
    return torch.topk(values.abs(), count, sorted=False).indices.sort().values


def _is_listed(count: int, size: int) -> bool:
    """Return whether so many positions are fewer bytes as a list of numbers than as a bit each."""
    return 32 * count < size


def _put_positions(chosen: Tensor, size: int) -> dict[str, Tensor]:
    if _is_listed(chosen.numel(), size):
        return {"positions": chosen.to(torch.int32)}
    mask = np.zeros(size, dtype=bool)
    mask[chosen.cpu().numpy()] = True
    return {"mask": torch.from_numpy(np.packbits(mask)).to(chosen.device)}


def _take_positions(arrays: Arrays, count: int, size: int) -> Tensor:
    if _is_listed(count, size):
        return arrays["positions"].long()
    mask = np.unpackbits(arrays["mask"].cpu().numpy(), count=size)
    return torch.from_numpy(np.flatnonzero(mask)).to(arrays["mask"].device)


def _sizes_among(chosen: Tensor, sizes: Sequence[int]) -> list[int]:
    """Return how many of the chosen positions lie in each tensor."""
    ends = torch.cumsum(torch.tensor(sizes, dtype=torch.int64), 0)
    tensors = torch.bucketize(chosen.cpu(), ends, right=True)
    counts: list[int] = torch.bincount(tensors, minlength=len(sizes)).tolist()
    return counts


def _form(size: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.empty(size, dtype=dtype, device="meta")


def _require(expected: Arrays, arrays: Arrays) -> None:
    fault = find_form_fault(expected, arrays)
    if fault is not None:
        raise WireFault(fault)


def _checked(chosen: Tensor, count: int, size: int) -> Tensor:
    """Return positions that are as many as they should be, rising, and inside the vector; others are refused."""
    rises = bool((chosen[1:] > chosen[:-1]).all())
    if chosen.numel() != count or not rises or int(chosen[0]) < 0 or int(chosen[-1]) >= size:
        raise WireFault(f"its positions are not {count} rising ones of {size}")
    return chosen


def _require_scales(arrays: Arrays) -> None:
    scales = arrays["scales"]
    if not bool((torch.isfinite(scales) & (scales >= 0)).all()):
        raise WireFault("its scales are not finite numbers from 0 on")
    if bool((arrays["values"] < -LEVELS).any()):
        raise WireFault(f"it has values of int8 below {-LEVELS}")
