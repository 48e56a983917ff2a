"""Flat vectors through a routed index, in Triton: copy in, add up gradients, clip and step, accumulate answers."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedfeast.engines.graphs.blueprint import PARTS_TO_SIZE, Blueprint
from fedfeast.engines.graphs.kernels.launching import launch
from fedfeast.engines.graphs.plain_vectors import ClientVectors, Ranges
from fedfeast.federation import LocalSgd

BLOCK = 1024  # positions that a program works on
NORM_BLOCK = 4 * BLOCK  # where few programs share all positions
NORM_PROGRAMS = 512  # that share the sum of squares; a power of two


@triton.jit
def _routed(index, first, num_chunks, CHUNK: tl.constexpr, SIZE: tl.constexpr):
    """Return the positions (chunks, positions in a chunk) that a part of an index names, negative outside it."""
    i = first + tl.arange(0, SIZE // CHUNK)
    chunk = tl.load(index + i, mask=i < num_chunks, other=-1)
    return tl.multiple_of(chunk * CHUNK, CHUNK)[:, None] + tl.arange(0, CHUNK)[None, :], (chunk >= 0)[:, None]


@triton.jit(do_not_specialize=["num_chunks", "num_rounded"])
def _gather(source, index, low, full, num_chunks, num_rounded, CHUNK: tl.constexpr, SIZE: tl.constexpr):
    first = tl.program_id(0) * (SIZE // CHUNK)
    position, is_routed = _routed(index, first, num_chunks, CHUNK, SIZE)
    values = tl.load(source + position, mask=is_routed, other=0.0)
    chunk = first + tl.arange(0, SIZE // CHUNK)
    place = (chunk * CHUNK)[:, None] + tl.arange(0, CHUNK)[None, :]
    is_rounded = (chunk * CHUNK < num_rounded)[:, None]
    tl.store(low + place, values.to(low.dtype.element_ty), mask=is_routed & is_rounded)
    tl.store(full + place - num_rounded, values, mask=is_routed & ~is_rounded)


@triton.jit
def _add_gradients(
    gradient,
    partials,
    index,
    table,
    CHUNK: tl.constexpr,
    SIZE_OF_ONE: tl.constexpr,
    FEW: tl.constexpr,
    SIZE_OF_FEW: tl.constexpr,
    MANY: tl.constexpr,
    SIZE_OF_MANY: tl.constexpr,
):
    """Add up a row's parts: one, a few or many of them at once, so that all have tiles of about the same size."""
    row = table + tl.program_id(0) * 5
    parts = tl.load(row + 3)
    if parts == 1:
        _add_row(gradient, partials, index, row, CHUNK, SIZE_OF_ONE, 1)
    elif parts <= FEW:
        _add_row(gradient, partials, index, row, CHUNK, SIZE_OF_FEW, FEW)
    else:
        _add_row(gradient, partials, index, row, CHUNK, SIZE_OF_MANY, MANY)


@triton.jit
def _add_row(gradient, partials, index, row, CHUNK: tl.constexpr, SIZE: tl.constexpr, PARTS: tl.constexpr):
    start, count = tl.load(row), tl.load(row + 1)
    partial_start, parts, part_size = tl.load(row + 2), tl.load(row + 3), tl.load(row + 4)
    chunk = tl.arange(0, SIZE // CHUNK)
    i = (chunk * CHUNK)[:, None] + tl.arange(0, CHUNK)[None, :]
    is_here = i < count
    # A tensor starts at a chunk, so that a program never shares one with another.
    position = tl.load(index + start // CHUNK + chunk, mask=chunk * CHUNK < count, other=0)
    position = tl.multiple_of(position * CHUNK, CHUNK)[:, None] + tl.arange(0, CHUNK)[None, :]
    total = tl.zeros((SIZE // CHUNK, CHUNK), dtype=tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        place = partial_start + part[:, None, None] * part_size + i[None, :, :]
        some = tl.load(partials + place, mask=(part < parts)[:, None, None] & is_here[None, :, :], other=0.0)
        total += tl.sum(some, axis=0)
    before = tl.load(gradient + position, mask=is_here, other=0.0)
    tl.store(gradient + position, before + total, mask=is_here)


@triton.jit(do_not_specialize=["num_chunks"])
def _square_sums(gradient, index, out, num_chunks, CHUNK: tl.constexpr, SIZE: tl.constexpr):
    total = tl.zeros((SIZE // CHUNK, CHUNK), dtype=tl.float32)
    at_once: tl.constexpr = SIZE // CHUNK
    for first in range(tl.program_id(0) * at_once, num_chunks, tl.num_programs(0) * at_once):
        position, is_routed = _routed(index, first, num_chunks, CHUNK, SIZE)
        values = tl.load(gradient + position, mask=is_routed, other=0.0)
        total += values * values
    tl.store(out + tl.program_id(0), tl.sum(tl.sum(total, axis=1), axis=0))


@triton.jit
def _clipping(square_sums, clip_norm, SUMS: tl.constexpr):
    """Return the factor that brings the gradient down to the norm it must not exceed."""
    norm = tl.sqrt(tl.sum(tl.load(square_sums + tl.arange(0, SUMS)), axis=0))
    return tl.minimum(clip_norm / (norm + 1e-6), 1.0)


@triton.jit(do_not_specialize=["num_chunks"])
def _step(
    weights,
    gradient,
    index,
    square_sums,
    rate,
    decay,
    clip_norm,
    num_chunks,
    SUMS: tl.constexpr,
    CHUNK: tl.constexpr,
    SIZE: tl.constexpr,
):
    scale = rate * _clipping(square_sums, clip_norm, SUMS)
    position, is_routed = _routed(index, tl.program_id(0) * (SIZE // CHUNK), num_chunks, CHUNK, SIZE)
    values = tl.load(weights + position, mask=is_routed, other=0.0)
    slope = tl.load(gradient + position, mask=is_routed, other=0.0)
    tl.store(weights + position, values * decay - scale * slope, mask=is_routed)
    tl.store(gradient + position, tl.zeros_like(slope), mask=is_routed)


@triton.jit(do_not_specialize=["num_chunks"])
def _step_with_momentum(
    weights,
    gradient,
    velocity,
    index,
    square_sums,
    rate,
    weight_decay,
    momentum,
    clip_norm,
    num_chunks,
    SUMS: tl.constexpr,
    CHUNK: tl.constexpr,
    SIZE: tl.constexpr,
):
    scale = _clipping(square_sums, clip_norm, SUMS)
    position, is_routed = _routed(index, tl.program_id(0) * (SIZE // CHUNK), num_chunks, CHUNK, SIZE)
    values = tl.load(weights + position, mask=is_routed, other=0.0)
    slope = tl.load(gradient + position, mask=is_routed, other=0.0)
    before = tl.load(velocity + position, mask=is_routed, other=0.0)
    pushed = momentum * before + scale * slope + weight_decay * values
    tl.store(velocity + position, pushed, mask=is_routed)
    tl.store(weights + position, values - rate * pushed, mask=is_routed)
    tl.store(gradient + position, tl.zeros_like(slope), mask=is_routed)


@triton.jit(do_not_specialize=["num_chunks", "size"])
def _accumulate(
    sums, weights, source, index, weight, factor, num_chunks, size, CHUNK: tl.constexpr, SIZE: tl.constexpr
):
    position, is_routed = _routed(index, tl.program_id(0) * (SIZE // CHUNK), num_chunks, CHUNK, SIZE)
    is_inside = is_routed & (position < size)
    values = tl.load(source + position, mask=is_inside, other=0.0).to(tl.float64) * factor
    before = tl.load(sums + position, mask=is_inside, other=0.0)
    tl.store(sums + position, before + weight * values, mask=is_inside)
    before = tl.load(weights + position, mask=is_inside, other=0.0)
    tl.store(weights + position, before + weight, mask=is_inside)


class TritonVectors:
    """The fused form of ``PlainVectors``, for indices of single positions or of chunks."""

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk

    def gather(self, source: Tensor, blueprint: Blueprint, low: Tensor, full: Tensor) -> None:
        """Copy an architecture's weights in: convolutions rounded, all others whole."""
        chunks = blueprint.index.numel()
        launch(
            _gather, self._grid(chunks), source, blueprint.index, low, full, chunks, blueprint.num_rounded,
            CHUNK=self._chunk, SIZE=BLOCK,
        )  # fmt: skip

    def add_gradients(self, gradient: Tensor, partials: Tensor, blueprint: Blueprint) -> None:
        """Add up the partial gradients of a pass at their positions."""
        one, few, many = PARTS_TO_SIZE
        launch(
            _add_gradients, (len(blueprint.table),), gradient, partials, blueprint.index, blueprint.table,
            CHUNK=self._chunk, SIZE_OF_ONE=PARTS_TO_SIZE[one], FEW=few, SIZE_OF_FEW=PARTS_TO_SIZE[few],
            MANY=many, SIZE_OF_MANY=PARTS_TO_SIZE[many],
        )  # fmt: skip

    def step(self, client: ClientVectors, index: Tensor, sgd: LocalSgd, rate: float, ranges: Ranges | None) -> None:
        """Clip at the indexed positions, step there or in some ranges of them; the gradient is zero afterwards."""
        weights, gradient, velocity = client.weights, client.gradient, client.velocity
        sums = torch.empty(NORM_PROGRAMS, dtype=torch.float32, device=weights.device)
        sizes = {"SUMS": NORM_PROGRAMS, "CHUNK": self._chunk, "SIZE": BLOCK}
        launch(_square_sums, (NORM_PROGRAMS,), gradient, index, sums, index.numel(), CHUNK=self._chunk, SIZE=NORM_BLOCK)
        for start, stop in [(0, index.numel())] if ranges is None else ranges:
            part, grid, chunks = index[start:stop], self._grid(stop - start), stop - start
            if velocity is None:
                decay = 1.0 - rate * sgd.weight_decay
                launch(_step, grid, weights, gradient, part, sums, rate, decay, sgd.clip_norm, chunks, **sizes)
            else:
                launch(
                    _step_with_momentum, grid, weights, gradient, velocity, part, sums,
                    rate, sgd.weight_decay, sgd.momentum, sgd.clip_norm, chunks, **sizes,
                )  # fmt: skip

    def accumulate(self, totals: Tensor, source: Tensor, index: Tensor, weight: float, factor: float) -> None:
        """Add weight * factor * source to the sums and weight to the weights, at the indexed positions."""
        chunks = index.numel()
        if chunks:
            launch(
                _accumulate, self._grid(chunks), totals[0], totals[1], source, index, float(weight), factor,
                chunks, totals.shape[1], CHUNK=self._chunk, SIZE=BLOCK,
            )  # fmt: skip

    def _grid(self, chunks: int) -> tuple[int]:
        return (triton.cdiv(chunks * self._chunk, BLOCK),)
