"""Convolutions of narrow layers in Triton: implicit matrix products on channels-last features.

The variants are deep and narrow, so a convolution is a few microseconds of work. What a library spends on generality
is saved here: statistics for batch normalisation leave with the convolution that produces its input, and whatever
follows an input's gradient is done while it is still in registers. Sums over tiles are added in a fixed order, so the
same input gives the same bits.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAXIMUM_TAPS = 9  # of a 3x3 kernel: the bits of a mask


@dataclass(frozen=True)
class Tiles:
    """How a product is cut: rows, columns and depth of a tile, warps that share it, loads kept in flight."""

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 2


def power_of_two(number: int, least: int, most: int) -> int:
    """Return the least power of two that is not below the number, within limits."""
    return max(least, min(most, triton.next_power_of_2(number)))


def precision_of(features: Tensor) -> str:
    """Return how products of float32 are made: in TF32 where PyTorch's own convolutions would."""
    return "tf32" if features.dtype == torch.float32 and torch.backends.cudnn.allow_tf32 else "ieee"


def empty_features(batch: int, channels: int, height: int, width: int, like: Tensor) -> Tensor:
    """Return uninitialised channels-last features."""
    shape = (batch, channels, height, width)
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


@triton.jit
def _taps_inside(row, column, height, width, KERNEL: tl.constexpr):
    """Return one bit per tap: whether the pixel under it lies inside the image."""
    bits = tl.zeros_like(row)
    for tap in tl.static_range(KERNEL * KERNEL):
        tap_row = row + tap // KERNEL
        tap_column = column + tap % KERNEL
        inside = (tap_row >= 0) & (tap_row < height) & (tap_column >= 0) & (tap_column < width)
        bits = bits | (inside.to(tl.int32) << tap)
    return bits


@triton.jit
def _is_last(counter):
    """Count the programs that came this far; the last of them may read what all others stored."""
    tl.debug_barrier()
    arrived = tl.atomic_add(counter, 1)
    last = arrived == tl.num_programs(0) - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit(do_not_specialize=["height", "width", "incoming", "outgoing", "num_pixels", "height_out", "width_out"])
def _convolve(
    features,
    weights,
    out,
    partial_sums,
    partial_squares,
    counters,
    mean,
    inverse_deviation,
    epsilon,
    num_pixels,
    height,
    width,
    height_out,
    width_out,
    incoming,
    outgoing,
    STRIDE: tl.constexpr,
    KERNEL: tl.constexpr,
    IN_VECTOR: tl.constexpr,
    OUT_VECTOR: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    row_tile = tl.program_id(0)
    column_tile = tl.program_id(1)
    pixel = row_tile * ROWS + tl.arange(0, ROWS)
    channel = column_tile * COLUMNS + tl.arange(0, COLUMNS)
    is_pixel = pixel < num_pixels
    is_channel = tl.max_constancy(channel < outgoing, OUT_VECTOR)
    column = (pixel % width_out) * STRIDE - KERNEL // 2
    row = ((pixel // width_out) % height_out) * STRIDE - KERNEL // 2
    image = pixel // (width_out * height_out)
    bits = tl.where(is_pixel, _taps_inside(row, column, height, width, KERNEL), 0)
    base = tl.multiple_of(((image * height + row) * width + column) * incoming, IN_VECTOR)
    depth = KERNEL * KERNEL * incoming
    weight_row = tl.multiple_of(channel * depth, IN_VECTOR)
    products = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, depth, DEPTH):
        k = start + tl.arange(0, DEPTH)
        tap = tl.max_constancy(k // incoming, IN_VECTOR)
        offset = ((tap // KERNEL) * width + tap % KERNEL) * incoming + k % incoming
        offset = tl.max_contiguous(tl.multiple_of(offset, IN_VECTOR), IN_VECTOR)
        inside = ((bits[:, None] >> tap[None, :]) & 1) != 0
        a = tl.load(features + (base[:, None] + offset[None, :]), mask=inside, other=0.0)
        is_k = tl.max_constancy(k < depth, IN_VECTOR)
        b = tl.load(weights + (weight_row[None, :] + k[:, None]), mask=is_k[:, None] & is_channel[None, :], other=0.0)
        products = tl.dot(a, b, products, input_precision=PRECISION)
    rounded = products.to(out.dtype.element_ty)
    is_place = is_pixel[:, None] & is_channel[None, :]
    tl.store(out + (tl.multiple_of(pixel * outgoing, OUT_VECTOR)[:, None] + channel[None, :]), rounded, mask=is_place)
    # Mean and squared deviation of this tile, then of all tiles by the last program of each column.
    values = tl.where(is_place, rounded.to(tl.float32), 0.0)
    count = tl.minimum(num_pixels - row_tile * ROWS, ROWS).to(tl.float32)
    total = tl.sum(values, axis=0)
    deviation = tl.where(is_place, values - (total / count)[None, :], 0.0)
    place = row_tile * outgoing + channel
    tl.store(partial_sums + place, total, mask=is_channel)
    tl.store(partial_squares + place, tl.sum(deviation * deviation, axis=0) + total * (total / count), mask=is_channel)
    if _is_last(counters + column_tile):
        all_sums, all_squares = _column_sums(
            partial_sums, partial_squares, tl.num_programs(0), channel, outgoing, COLUMNS
        )
        average = all_sums / num_pixels
        variance = tl.maximum(all_squares / num_pixels - average * average, 0.0)
        tl.store(mean + channel, average, mask=is_channel)
        tl.store(inverse_deviation + channel, tl.rsqrt(variance + epsilon), mask=is_channel)


@triton.jit
def _column_sums(first, second, num_rows, channel, num_channels, COLUMNS: tl.constexpr):
    """Return the sums down the columns of two (rows, channels) arrays, always in the same order."""
    AT_ONCE: tl.constexpr = 1024 // COLUMNS if COLUMNS < 256 else 4
    first_sums = tl.zeros((AT_ONCE, COLUMNS), dtype=tl.float32)
    second_sums = tl.zeros((AT_ONCE, COLUMNS), dtype=tl.float32)
    for start in range(0, num_rows, AT_ONCE):
        row = start + tl.arange(0, AT_ONCE)
        place = row[:, None] * num_channels + channel[None, :]
        inside = (row < num_rows)[:, None] & (channel < num_channels)[None, :]
        # Straight from the second-level cache: other multiprocessors wrote these.
        first_sums += tl.load(first + place, mask=inside, other=0.0, cache_modifier=".cg")
        second_sums += tl.load(second + place, mask=inside, other=0.0, cache_modifier=".cg")
    return tl.sum(first_sums, axis=0), tl.sum(second_sums, axis=0)


@triton.jit(do_not_specialize=["height", "width", "incoming", "outgoing", "num_pixels", "height_in", "width_in"])
def _input_gradient(
    gradient,
    weights,
    out,
    added,
    added_mask,
    before_norm,
    mean,
    inverse_deviation,
    scale,
    shift,
    partial_sums,
    partial_products,
    counters,
    scale_gradient,
    shift_gradient,
    num_pixels,
    height_in,
    width_in,
    height,
    width,
    incoming,
    outgoing,
    STRIDE: tl.constexpr,
    KERNEL: tl.constexpr,
    IN_VECTOR: tl.constexpr,
    OUT_VECTOR: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
    ADD: tl.constexpr,
    MASK_ADDED: tl.constexpr,
    RECTIFIED_NORM: tl.constexpr,
):
    row_tile = tl.program_id(0)
    column_tile = tl.program_id(1)
    pixel = row_tile * ROWS + tl.arange(0, ROWS)  # of the input
    channel = column_tile * COLUMNS + tl.arange(0, COLUMNS)  # of the input
    is_pixel = pixel < num_pixels
    is_channel = tl.max_constancy(channel < incoming, IN_VECTOR)
    # Tap (i, j) reached input pixel p from the output pixel (p + padding - tap) / stride.
    column = pixel % width_in + KERNEL // 2 - (KERNEL - 1)
    row = (pixel // width_in) % height_in + KERNEL // 2 - (KERNEL - 1)
    image = pixel // (width_in * height_in)
    bits = tl.zeros_like(row)
    for tap in tl.static_range(KERNEL * KERNEL):
        tap_row = row + tap // KERNEL
        tap_column = column + tap % KERNEL
        inside = (tap_row >= 0) & (tap_row < height * STRIDE) & (tap_column >= 0) & (tap_column < width * STRIDE)
        if STRIDE > 1:
            inside = inside & (tap_row % STRIDE == 0) & (tap_column % STRIDE == 0)
        bits = bits | (inside.to(tl.int32) << tap)
    bits = tl.where(is_pixel, bits, 0)
    depth = KERNEL * KERNEL * outgoing
    products = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, depth, DEPTH):
        k = start + tl.arange(0, DEPTH)
        tap = tl.max_constancy(k // outgoing, OUT_VECTOR)  # counted from the opposite corner of the kernel
        k_channel = tl.max_contiguous(tl.multiple_of(k % outgoing, OUT_VECTOR), OUT_VECTOR)
        inside = ((bits[:, None] >> tap[None, :]) & 1) != 0
        if STRIDE == 1:
            base = tl.multiple_of(((image * height + row) * width + column) * outgoing, OUT_VECTOR)
            offset = ((tap // KERNEL) * width + tap % KERNEL) * outgoing + k_channel
            source = base[:, None] + tl.max_contiguous(tl.multiple_of(offset, OUT_VECTOR), OUT_VECTOR)[None, :]
        else:
            from_row = (row[:, None] + (tap // KERNEL)[None, :]) // STRIDE
            from_column = (column[:, None] + (tap % KERNEL)[None, :]) // STRIDE
            source = ((image[:, None] * height + from_row) * width + from_column) * outgoing + k_channel[None, :]
        a = tl.load(gradient + source, mask=inside, other=0.0)
        weight_row = k_channel * (KERNEL * KERNEL * incoming) + (KERNEL * KERNEL - 1 - tap) * incoming
        weight_row = tl.multiple_of(weight_row, IN_VECTOR)
        is_weight = (k < depth)[:, None] & is_channel[None, :]
        b = tl.load(weights + (weight_row[:, None] + channel[None, :]), mask=is_weight, other=0.0)
        products = tl.dot(a, b, products, input_precision=PRECISION)
    place = tl.multiple_of(pixel * incoming, IN_VECTOR)[:, None] + channel[None, :]
    is_place = is_pixel[:, None] & is_channel[None, :]
    if ADD:
        extra = tl.load(added + place, mask=is_place, other=0.0).to(tl.float32)
        if MASK_ADDED:
            passed = tl.load(added_mask + place, mask=is_place, other=0.0) > 0
            extra = tl.where(passed, extra, 0.0)
        products += extra
    if RECTIFIED_NORM:
        # The input was rectify(normalise(before_norm)): pass the rectifier, and sum what normalisation's gradient needs.
        average = tl.load(mean + channel, mask=is_channel, other=0.0)
        inverse = tl.load(inverse_deviation + channel, mask=is_channel, other=0.0)
        factor = inverse * tl.load(scale + channel, mask=is_channel, other=0.0)
        constant = tl.load(shift + channel, mask=is_channel, other=0.0)
        centred = tl.load(before_norm + place, mask=is_place, other=0.0).to(tl.float32) - average[None, :]
        passed = is_place & (centred * factor[None, :] + constant[None, :] > 0)
        products = tl.where(passed, products, 0.0)
    rounded = products.to(out.dtype.element_ty)
    tl.store(out + place, rounded, mask=is_place)
    if RECTIFIED_NORM:
        values = rounded.to(tl.float32)
        partial = row_tile * incoming + channel
        tl.store(partial_sums + partial, tl.sum(values, axis=0), mask=is_channel)
        weighted = tl.sum(values * centred, axis=0) * inverse
        tl.store(partial_products + partial, weighted, mask=is_channel)
        if _is_last(counters + column_tile):
            sums, weighted_sums = _column_sums(
                partial_sums, partial_products, tl.num_programs(0), channel, incoming, COLUMNS
            )
            tl.store(shift_gradient + channel, sums, mask=is_channel)
            tl.store(scale_gradient + channel, weighted_sums, mask=is_channel)


@triton.jit(
    do_not_specialize=[
        "plain_channels",
        "shifted_channels",
        "num_pixels",
        "pixels_a_part",
        "height",
        "width",
        "shifted_height",
        "shifted_width",
        "part_stride",
    ]
)
def _weight_gradient(
    plain,
    shifted,
    out,
    num_pixels,
    pixels_a_part,
    height,
    width,
    shifted_height,
    shifted_width,
    plain_channels,
    shifted_channels,
    part_stride,
    STRIDE: tl.constexpr,
    KERNEL: tl.constexpr,
    SHIFTS_INPUT: tl.constexpr,
    PLAIN_VECTOR: tl.constexpr,
    SHIFTED_VECTOR: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    part = tl.program_id(0)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    taps: tl.constexpr = KERNEL * KERNEL
    is_m = tl.max_constancy(m < plain_channels, PLAIN_VECTOR)
    tap = tl.max_constancy(n // shifted_channels, SHIFTED_VECTOR)
    n_channel = n % shifted_channels
    offset = ((tap // KERNEL) * shifted_width + tap % KERNEL) * shifted_channels + n_channel
    offset = tl.max_contiguous(tl.multiple_of(offset, SHIFTED_VECTOR), SHIFTED_VECTOR)
    products = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    last = tl.minimum(num_pixels, (part + 1) * pixels_a_part)
    for start in range(part * pixels_a_part, last, DEPTH):
        pixel = start + tl.arange(0, DEPTH)
        is_pixel = pixel < last
        plain_row = tl.multiple_of(pixel * plain_channels, PLAIN_VECTOR)
        a = tl.load(plain + (plain_row[:, None] + m[None, :]), mask=is_pixel[:, None] & is_m[None, :], other=0.0)
        column = (pixel % width) * STRIDE - KERNEL // 2
        row = ((pixel // width) % height) * STRIDE - KERNEL // 2
        image = pixel // (width * height)
        bits = tl.where(is_pixel, _taps_inside(row, column, shifted_height, shifted_width, KERNEL), 0)
        base = ((image * shifted_height + row) * shifted_width + column) * shifted_channels
        base = tl.multiple_of(base, SHIFTED_VECTOR)
        inside = ((bits[:, None] >> tap[None, :]) & 1) != 0
        b = tl.load(shifted + (base[:, None] + offset[None, :]), mask=inside, other=0.0)
        products = tl.dot(tl.trans(a), b, products, input_precision=PRECISION)
    is_n = n < taps * shifted_channels
    if SHIFTS_INPUT:  # m is an output channel, n a tap and an input channel: the order of storage
        place = m[:, None] * (taps * shifted_channels) + n[None, :]
    else:  # m is an input channel; the gradient was shifted, so taps count from the opposite corner
        place = (n_channel * (taps * plain_channels) + (taps - 1 - tap) * plain_channels)[None, :] + m[:, None]
    tl.store(out + part * part_stride + place, products, mask=is_m[:, None] & is_n[None, :])


@dataclass(frozen=True, eq=False)
class Statistics:
    """What batch normalisation knows of its input, per channel in float32."""

    mean: Tensor
    inverse_deviation: Tensor


def convolve(
    features: Tensor, weight: Tensor, stride: int, counters: Tensor, epsilon: float, tiles: Tiles | None = None
) -> tuple[Tensor, Statistics]:
    """Return the convolution of channels-last features, padded to keep their size, and its batch statistics."""
    batch, incoming, height, width = features.shape
    outgoing, _, kernel, _ = weight.shape
    height_out, width_out = (height - 1) // stride + 1, (width - 1) // stride + 1
    num_pixels = batch * height_out * width_out
    tiles = tiles or forward_tiles(num_pixels, incoming * kernel * kernel, outgoing)
    grid = (triton.cdiv(num_pixels, tiles.rows), triton.cdiv(outgoing, tiles.columns))
    out = empty_features(batch, outgoing, height_out, width_out, features)
    partials = torch.empty(2, grid[0], outgoing, dtype=torch.float32, device=features.device)
    statistics = torch.empty(2, outgoing, dtype=torch.float32, device=features.device)
    _convolve[grid](
        features, weight, out, partials[0], partials[1], counters, statistics[0], statistics[1], epsilon,
        num_pixels, height, width, height_out, width_out, incoming, outgoing,
        STRIDE=stride, KERNEL=kernel, IN_VECTOR=vector_of(incoming), OUT_VECTOR=vector_of(outgoing),
        PRECISION=precision_of(features), **_cut(tiles),
    )  # fmt: skip
    return out, Statistics(statistics[0], statistics[1])


@dataclass(frozen=True, eq=False)
class Norm:
    """A batch normalisation: its input, statistics and parameters, and where its parameters' gradients belong."""

    features: Tensor
    statistics: Statistics
    scale: Tensor
    shift: Tensor
    scale_gradient: Tensor
    shift_gradient: Tensor


def input_gradient(
    gradient: Tensor,
    weight: Tensor,
    like: Tensor,
    stride: int,
    counters: Tensor,
    added: Tensor | None = None,
    added_where: Tensor | None = None,
    norm: Norm | None = None,
    tiles: Tiles | None = None,
) -> Tensor:
    """Return the gradient by a convolution's input, which is shaped like another tensor.

    ``added`` comes on top, only where ``added_where`` is positive if that is given. With ``norm``, whose rectified
    output was the input, the gradient is taken back through the rectifier and the norm's own gradients are stored.
    """
    batch, outgoing, height, width = gradient.shape
    incoming, height_in, width_in = like.shape[1:]
    num_pixels, kernel = batch * height_in * width_in, weight.shape[2]
    tiles = tiles or forward_tiles(num_pixels, outgoing * kernel * kernel, incoming)
    grid = (triton.cdiv(num_pixels, tiles.rows), triton.cdiv(incoming, tiles.columns))
    out = empty_features(batch, incoming, height_in, width_in, gradient)
    nothing = out  # stands for tensors that the kernel does not read
    partials = torch.empty(2, grid[0], incoming, dtype=torch.float32, device=gradient.device) if norm else (out, out)
    _input_gradient[grid](
        gradient, weight, out,
        nothing if added is None else added, nothing if added_where is None else added_where,
        norm.features if norm else nothing,
        norm.statistics.mean if norm else nothing, norm.statistics.inverse_deviation if norm else nothing,
        norm.scale if norm else nothing, norm.shift if norm else nothing,
        partials[0], partials[1], counters,
        norm.scale_gradient if norm else nothing, norm.shift_gradient if norm else nothing,
        num_pixels, height_in, width_in, height, width, incoming, outgoing,
        STRIDE=stride, KERNEL=kernel, IN_VECTOR=vector_of(incoming), OUT_VECTOR=vector_of(outgoing),
        PRECISION=precision_of(gradient), ADD=added is not None, MASK_ADDED=added_where is not None,
        RECTIFIED_NORM=norm is not None, **_cut(tiles),
    )  # fmt: skip
    return out


@dataclass(frozen=True)
class Cut:
    """How a weight's gradient is summed: over several parts of the pixels, each a partial sum of its own."""

    tiles: Tiles
    parts: int
    shifts_input: bool  # else the gradient is shifted, where it has fewer channels


def weight_gradient(features: Tensor, gradient: Tensor, stride: int, kernel: int, out: Tensor, cut: Cut) -> None:
    """Store the partial sums (parts, out, kernel, kernel, in) of the gradient by a convolution's weight."""
    plain, shifted = (gradient, features) if cut.shifts_input else (features, gradient)
    batch, plain_channels, height, width = plain.shape
    shifted_channels, shifted_height, shifted_width = shifted.shape[1:]
    num_pixels, tiles = batch * height * width, cut.tiles
    assert cut.shifts_input or stride == 1
    grid = (
        cut.parts,
        triton.cdiv(plain_channels, tiles.rows),
        triton.cdiv(kernel * kernel * shifted_channels, tiles.columns),
    )
    _weight_gradient[grid](
        plain, shifted, out, num_pixels, triton.cdiv(num_pixels, cut.parts), height, width,
        shifted_height, shifted_width, plain_channels, shifted_channels,
        plain_channels * shifted_channels * kernel * kernel,
        STRIDE=stride, KERNEL=kernel, SHIFTS_INPUT=cut.shifts_input, PLAIN_VECTOR=vector_of(plain_channels),
        SHIFTED_VECTOR=vector_of(shifted_channels), PRECISION=precision_of(features), **_cut(tiles),
    )  # fmt: skip


def forward_tiles(num_pixels: int, depth: int, outgoing: int) -> Tiles:
    """Return the tiles of a product (pixels, depth) x (depth, outgoing)."""
    columns = power_of_two(outgoing, 16, 128 if num_pixels >= 4096 else 64)
    rows = 128 if num_pixels >= 16384 else 64 if num_pixels >= 4096 else 32
    return Tiles(rows, columns, 32 if depth <= 96 else 64, warps=4)


def weight_cut(num_pixels: int, incoming: int, outgoing: int, kernel: int, stride: int) -> Cut:
    """Return how to cut the gradient of a weight, given the pixels of the output."""
    shifts_input = stride > 1 or incoming <= outgoing
    plain, shifted = (outgoing, incoming) if shifts_input else (incoming, outgoing)
    columns_in_all = kernel * kernel * shifted
    tiles = Tiles(power_of_two(plain, 16, 64), power_of_two(columns_in_all, 16, 128), 64)
    programs = triton.cdiv(plain, tiles.rows) * triton.cdiv(columns_in_all, tiles.columns)
    parts = max(1, min(256 // programs, num_pixels // 256))
    return Cut(tiles, parts, shifts_input)


def vector_of(channels: int) -> int:
    """Return how many neighbouring channels one load may take: eight where rows begin at multiples of eight."""
    return 8 if channels % 8 == 0 else 1


def _cut(tiles: Tiles) -> dict[str, Any]:
    return {
        "ROWS": tiles.rows,
        "COLUMNS": tiles.columns,
        "DEPTH": tiles.depth,
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }
