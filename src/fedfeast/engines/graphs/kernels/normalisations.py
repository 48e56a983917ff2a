"""Batch normalisation with all that surrounds it, in Triton: rectifier, addition, and their gradients."""

import triton
import triton.language as tl
from torch import Tensor

from fedfeast.engines.graphs.kernels.features import Norm, empty_features, norm_parameters
from fedfeast.engines.graphs.kernels.launching import launch, tile_places
from fedfeast.engines.graphs.kernels.reductions import empty_partials, finish_sums
from fedfeast.engines.graphs.tiles import power_of_two, tile_columns, vector_of

ELEMENTS = 4096  # of a tile
SUMMED_ELEMENTS = 2048  # of a tile that is summed
PROGRAMS = 792  # that share a sum over all pixels: six for each multiprocessor of a large device


@triton.jit(do_not_specialize=["num_pixels", "num_channels"])
def _normalise(
    features,
    mean,
    inverse_deviation,
    scale,
    shift,
    added,
    added_mean,
    added_inverse_deviation,
    added_scale,
    added_shift,
    out,
    num_pixels,
    num_channels,
    VECTOR: tl.constexpr,
    ADD: tl.constexpr,
    NORMALISE_ADDED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    _, channel, is_channel, place, is_place = tile_places(num_pixels, num_channels, VECTOR, ROWS, COLUMNS)
    average, _, factor, constant = norm_parameters(mean, inverse_deviation, scale, shift, channel, is_channel)
    values = tl.load(features + place, mask=is_place, other=0.0).to(tl.float32)
    values = tl.maximum((values - average) * factor + constant, 0.0)
    if ADD:
        extra = tl.load(added + place, mask=is_place, other=0.0).to(tl.float32)
        if NORMALISE_ADDED:
            average, _, factor, constant = norm_parameters(
                added_mean, added_inverse_deviation, added_scale, added_shift, channel, is_channel
            )
            extra = (extra - average) * factor + constant
        values = tl.maximum(values + extra, 0.0)
    tl.store(out + place, values.to(out.dtype.element_ty), mask=is_place)


@triton.jit
def _passed_gradient(
    gradient, out, centred, factor, constant, place, is_place, MASKED: tl.constexpr, RECTIFIED: tl.constexpr
):
    """Return the gradient by the normalised values: what the rectifiers behind them let through."""
    values = tl.load(gradient + place, mask=is_place, other=0.0).to(tl.float32)
    if MASKED:
        values = tl.where(tl.load(out + place, mask=is_place, other=0.0) > 0, values, 0.0)
    if RECTIFIED:
        values = tl.where(centred * factor + constant > 0, values, 0.0)
    return values


@triton.jit(do_not_specialize=["num_pixels", "num_channels", "pixels_a_part"])
def _sum_gradients(
    gradient,
    out,
    features,
    mean,
    inverse_deviation,
    scale,
    shift,
    partial_sums,
    partial_products,
    num_pixels,
    num_channels,
    pixels_a_part,
    VECTOR: tl.constexpr,
    MASKED: tl.constexpr,
    RECTIFIED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    part = tl.program_id(0)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_channel = tl.max_constancy(channel < num_channels, VECTOR)
    average, inverse, factor, constant = norm_parameters(mean, inverse_deviation, scale, shift, channel, is_channel)
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    products = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    last = tl.minimum(num_pixels, (part + 1) * pixels_a_part)
    for start in range(part * pixels_a_part, last, ROWS):
        pixel = start + tl.arange(0, ROWS)
        place = tl.multiple_of(pixel * num_channels, VECTOR)[:, None] + channel[None, :]
        is_place = (pixel < last)[:, None] & is_channel[None, :]
        centred = tl.load(features + place, mask=is_place, other=0.0).to(tl.float32) - average
        values = _passed_gradient(gradient, out, centred, factor, constant, place, is_place, MASKED, RECTIFIED)
        sums += values
        products += values * centred
    partial = part * num_channels + channel
    tl.store(partial_sums + partial, tl.sum(sums, axis=0), mask=is_channel)
    tl.store(partial_products + partial, tl.sum(products * inverse, axis=0), mask=is_channel)


@triton.jit(do_not_specialize=["num_pixels", "num_channels"])
def _norm_gradient(
    gradient,
    out,
    features,
    mean,
    inverse_deviation,
    scale,
    shift,
    scale_gradient,
    shift_gradient,
    result,
    num_pixels,
    num_channels,
    VECTOR: tl.constexpr,
    MASKED: tl.constexpr,
    RECTIFIED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    _, channel, is_channel, place, is_place = tile_places(num_pixels, num_channels, VECTOR, ROWS, COLUMNS)
    average, inverse, factor, constant = norm_parameters(mean, inverse_deviation, scale, shift, channel, is_channel)
    mean_gradient = (tl.load(shift_gradient + channel, mask=is_channel, other=0.0) / num_pixels)[None, :]
    mean_product = (tl.load(scale_gradient + channel, mask=is_channel, other=0.0) / num_pixels)[None, :]
    centred = tl.load(features + place, mask=is_place, other=0.0).to(tl.float32) - average
    values = _passed_gradient(gradient, out, centred, factor, constant, place, is_place, MASKED, RECTIFIED)
    values = factor * (values - mean_gradient - centred * inverse * mean_product)
    tl.store(result + place, values.to(result.dtype.element_ty), mask=is_place)


def normalise(norm: Norm, added: Tensor | None = None, added_norm: Norm | None = None) -> Tensor:
    """Return the rectified normalisation; ``added`` or another normalisation comes on top before a second rectifier."""
    features, statistics = norm.features, norm.statistics
    other = added_norm or norm
    extra = other.features if added is None else added
    out = empty_features(features.shape, features)
    rows, columns, grid = _tiles(features)
    launch(
        _normalise, grid, features, statistics.mean, statistics.inverse_deviation, norm.scale, norm.shift,
        extra, other.statistics.mean, other.statistics.inverse_deviation, other.scale, other.shift,
        out, _pixels(features), features.shape[1], VECTOR=vector_of(features.shape[1]),
        ADD=added is not None or added_norm is not None, NORMALISE_ADDED=added_norm is not None,
        ROWS=rows, COLUMNS=columns,
    )  # fmt: skip
    return out


def sum_gradients(gradient: Tensor, norm: Norm, out: Tensor | None, rectified: bool = True) -> None:
    """Store the gradients by scale and shift, given the gradient by what followed; see ``norm_gradient``."""
    features, statistics = norm.features, norm.statistics
    channels, num_pixels = features.shape[1], _pixels(features)
    columns = tile_columns(channels)
    rows, column_tiles = SUMMED_ELEMENTS // columns, triton.cdiv(channels, columns)
    parts = min(max(1, PROGRAMS // column_tiles), triton.cdiv(num_pixels, rows))
    partials = empty_partials(parts, channels, features)
    launch(
        _sum_gradients, (parts, column_tiles), gradient, gradient if out is None else out, features,
        statistics.mean, statistics.inverse_deviation, norm.scale, norm.shift, partials[0], partials[1],
        num_pixels, channels, triton.cdiv(num_pixels, parts),
        VECTOR=vector_of(channels), MASKED=out is not None, RECTIFIED=rectified,
        ROWS=rows, COLUMNS=columns,
    )  # fmt: skip
    finish_sums(partials, norm.shift_gradient, norm.scale_gradient)


def norm_gradient(gradient: Tensor, norm: Norm, out: Tensor | None, rectified: bool = True) -> Tensor:
    """Return the gradient by a normalisation's input, its scale's and shift's gradients being stored already.

    ``out`` is the block's output where a last rectifier came after an addition; ``rectified`` tells of the one before.
    """
    features, statistics = norm.features, norm.statistics
    result = empty_features(features.shape, features)
    rows, columns, grid = _tiles(features)
    launch(
        _norm_gradient, grid, gradient, gradient if out is None else out, features,
        statistics.mean, statistics.inverse_deviation, norm.scale, norm.shift,
        norm.scale_gradient, norm.shift_gradient, result, _pixels(features), features.shape[1],
        VECTOR=vector_of(features.shape[1]), MASKED=out is not None, RECTIFIED=rectified, ROWS=rows, COLUMNS=columns,
    )  # fmt: skip
    return result


@triton.jit(do_not_specialize=["num_pixels", "height", "width", "height_out", "width_out", "num_channels"])
def _pool(
    features,
    out,
    num_pixels,
    height,
    width,
    height_out,
    width_out,
    num_channels,
    VECTOR: tl.constexpr,
    STRIDE: tl.constexpr,
    BACKWARD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    # Forward a program writes pooled pixels; backward, with gradients for features, pixels of the input.
    pixel, channel, is_channel, place, is_place = tile_places(num_pixels, num_channels, VECTOR, ROWS, COLUMNS)
    own_width = width if BACKWARD else width_out
    own_height = height if BACKWARD else height_out
    image = pixel // (own_width * own_height)
    row = (pixel // own_width) % own_height
    column = pixel % own_width
    window_row = row // STRIDE if BACKWARD else row
    window_column = column // STRIDE if BACKWARD else column
    # A window that reaches over the edge is the mean of what it holds.
    rows_held = tl.minimum(height - window_row * STRIDE, STRIDE)
    columns_held = tl.minimum(width - window_column * STRIDE, STRIDE)
    share = 1.0 / (rows_held * columns_held).to(tl.float32)
    if BACKWARD:
        source = ((image * height_out + window_row) * width_out + window_column) * num_channels
        is_source = (pixel < num_pixels)[:, None] & is_channel[None, :]
        source = tl.multiple_of(source, VECTOR)[:, None] + channel[None, :]
        values = tl.load(features + source, mask=is_source, other=0.0).to(tl.float32)
    else:
        values = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for i in tl.static_range(STRIDE):
            for j in tl.static_range(STRIDE):
                source = ((image * height + row * STRIDE + i) * width + column * STRIDE + j) * num_channels
                is_held = (pixel < num_pixels) & (i < rows_held) & (j < columns_held)
                source = tl.multiple_of(source, VECTOR)[:, None] + channel[None, :]
                values += tl.load(features + source, mask=is_held[:, None] & is_channel[None, :], other=0.0).to(
                    tl.float32
                )
    tl.store(out + place, (values * share[:, None]).to(out.dtype.element_ty), mask=is_place)


def pool(features: Tensor, stride: int) -> Tensor:
    """Return the means over windows of stride x stride pixels; windows at the edge may be smaller."""
    batch, channels, height, width = features.shape
    out = empty_features((batch, channels, -(-height // stride), -(-width // stride)), features)
    _launch_pool(features, out, features, out, stride, backward=False)
    return out


def pool_gradient(gradient: Tensor, features: Tensor, stride: int) -> Tensor:
    """Return the gradient by the input of ``pool``."""
    out = empty_features(features.shape, features)
    _launch_pool(gradient, out, features, gradient, stride, backward=True)
    return out


def _launch_pool(source: Tensor, out: Tensor, whole: Tensor, pooled: Tensor, stride: int, backward: bool) -> None:
    rows, columns, grid = _tiles(out)
    launch(
        _pool, grid, source, out, _pixels(out), *whole.shape[2:], *pooled.shape[2:], out.shape[1],
        VECTOR=vector_of(out.shape[1]), STRIDE=stride, BACKWARD=backward, ROWS=rows, COLUMNS=columns,
    )  # fmt: skip


def _pixels(features: Tensor) -> int:
    return features.shape[0] * features.shape[2] * features.shape[3]


def _tiles(features: Tensor) -> tuple[int, int, tuple[int, int]]:
    """Return rows and columns of a tile, and the grid of tiles."""
    columns = power_of_two(features.shape[1], 8, 128)
    rows = ELEMENTS // columns
    return rows, columns, (triton.cdiv(_pixels(features), rows), triton.cdiv(features.shape[1], columns))
