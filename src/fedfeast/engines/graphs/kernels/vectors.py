"""Flat vectors through a routed index, in Triton: copy in, add up gradients, clip and step, accumulate answers."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedfeast.engines.graphs.blueprint import Blueprint
from fedfeast.federation import LocalSgd

BLOCK = 1024  # positions that a program works on
NORM_PROGRAMS = 512  # that share the sum of squares; a power of two


@triton.jit(do_not_specialize=["size"])
def _gather(source, index, low, full, size, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    position = tl.load(index + i, mask=i < size, other=-1)
    values = tl.load(source + position, mask=position >= 0, other=0.0)
    tl.store(low + i, values.to(low.dtype.element_ty), mask=i < size)
    tl.store(full + i, values, mask=i < size)


@triton.jit
def _add_gradients(gradient, partials, index, table, SIZE: tl.constexpr, PARTS: tl.constexpr):
    row = table + tl.program_id(0) * 5
    start, count = tl.load(row), tl.load(row + 1)
    partial_start, parts, part_size = tl.load(row + 2), tl.load(row + 3), tl.load(row + 4)
    i = tl.arange(0, SIZE)
    position = tl.load(index + start + i, mask=i < count, other=-1)
    total = tl.zeros((SIZE,), dtype=tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        inside = (part < parts)[:, None] & (i < count)[None, :]
        some = tl.load(partials + partial_start + part[:, None] * part_size + i[None, :], mask=inside, other=0.0)
        total += tl.sum(some, axis=0)
    before = tl.load(gradient + position, mask=position >= 0, other=0.0)
    tl.store(gradient + position, before + total, mask=position >= 0)


@triton.jit(do_not_specialize=["size"])
def _square_sums(gradient, index, out, size, SIZE: tl.constexpr):
    total = tl.zeros((SIZE,), dtype=tl.float32)
    for start in range(tl.program_id(0) * SIZE, size, tl.num_programs(0) * SIZE):
        i = start + tl.arange(0, SIZE)
        position = tl.load(index + i, mask=i < size, other=0)
        values = tl.load(gradient + position, mask=i < size, other=0.0)
        total += values * values
    tl.store(out + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit(do_not_specialize=["size"])
def _step(weights, gradient, index, square_sums, rate, decay, clip_norm, size, SUMS: tl.constexpr, SIZE: tl.constexpr):
    norm = tl.sqrt(tl.sum(tl.load(square_sums + tl.arange(0, SUMS)), axis=0))
    scale = rate * tl.minimum(clip_norm / (norm + 1e-6), 1.0)
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    position = tl.load(index + i, mask=i < size, other=0)
    values = tl.load(weights + position, mask=i < size, other=0.0)
    slope = tl.load(gradient + position, mask=i < size, other=0.0)
    tl.store(weights + position, values * decay - scale * slope, mask=i < size)
    tl.store(gradient + position, tl.zeros_like(slope), mask=i < size)


@triton.jit(do_not_specialize=["size"])
def _accumulate(sums, weights, source, index, weight, factor, size, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    position = tl.load(index + i, mask=i < size, other=0)
    values = tl.load(source + position, mask=i < size, other=0.0).to(tl.float64) * factor
    before = tl.load(sums + position, mask=i < size, other=0.0)
    tl.store(sums + position, before + weight * values, mask=i < size)
    before = tl.load(weights + position, mask=i < size, other=0.0)
    tl.store(weights + position, before + weight, mask=i < size)


class TritonVectors:
    """The fused form of ``PlainVectors``."""

    def gather(self, source: Tensor, blueprint: Blueprint, low: Tensor, full: Tensor) -> None:
        """Copy an architecture's weights in, once rounded and once whole; pads become zero."""
        size = blueprint.index.numel()
        _gather[(triton.cdiv(size, BLOCK),)](source, blueprint.index, low, full, size, SIZE=BLOCK)

    def add_gradients(self, gradient: Tensor, partials: Tensor, blueprint: Blueprint) -> None:
        """Add up the partial gradients of a pass at their positions."""
        for table in blueprint.tables:
            _add_gradients[(len(table.rows),)](
                gradient, partials, blueprint.index, table.rows, SIZE=table.size, PARTS=table.parts_at_once
            )

    def step(self, weights: Tensor, gradient: Tensor, index: Tensor, sgd: LocalSgd, rate: float) -> None:
        """Clip, decay and step at the indexed positions; the gradient is zero afterwards."""
        sums = torch.empty(NORM_PROGRAMS, dtype=torch.float32, device=weights.device)
        size = index.numel()
        _square_sums[(NORM_PROGRAMS,)](gradient, index, sums, size, SIZE=BLOCK)
        _step[(triton.cdiv(size, BLOCK),)](
            weights, gradient, index, sums, rate, 1.0 - rate * sgd.weight_decay, sgd.clip_norm, size,
            SUMS=NORM_PROGRAMS, SIZE=BLOCK,
        )  # fmt: skip

    def accumulate(self, totals: Tensor, source: Tensor, index: Tensor, weight: float, factor: float) -> None:
        """Add weight * factor * source to the sums and weight to the weights, at the indexed positions."""
        size = index.numel()
        if size:
            grid = (triton.cdiv(size, BLOCK),)
            _accumulate[grid](totals[0], totals[1], source, index, weight, factor, size, SIZE=BLOCK)
