"""Convolutions and their gradients by the input, in Triton: matrix products that gather pixels as they go.

The variants are deep and narrow, so a convolution is a few microseconds of work. What a library spends on generality
is saved here: statistics for batch normalisation leave with the convolution that produces its input, and whatever
follows an input's gradient is done while that is still in registers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedfeast.engines.graphs.kernels.features import (
    Norm,
    Statistics,
    empty_features,
    norm_parameters,
    precision_of,
)
from fedfeast.engines.graphs.kernels.launching import divide, launch, magic_of, tile_places
from fedfeast.engines.graphs.kernels.reductions import (
    empty_partials,
    finish_statistics,
    finish_sums,
    sum_over_splits,
)
from fedfeast.engines.graphs.tiles import Tiles, product_tiles, vector_of

REGISTERS = 128  # that a thread of the input gradient may use: with more, too few programs run side by side


@triton.jit
def _gathered_product(
    features,
    weights,
    num_pixels,
    height,
    width,
    height_out,
    width_out,
    incoming,
    outgoing,
    width_magic,
    height_magic,
    incoming_magic,
    pixel,
    channel,
    is_channel,
    PRECISION: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    STRIDE: tl.constexpr,
    KERNEL: tl.constexpr,
    IN_VECTOR: tl.constexpr,
    OUT_VECTOR: tl.constexpr,
    SPLIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Return the sum over taps and incoming channels of gathered pixels times weights, or this program's share."""
    taps: tl.constexpr = KERNEL * KERNEL
    line = divide(pixel, width_magic)
    image = divide(line, height_magic)
    row = (line - image * height_out) * STRIDE - KERNEL // 2
    column = (pixel - line * width_out) * STRIDE - KERNEL // 2
    # One bit per tap: whether it lies on a pixel of the image.
    row_bits = tl.zeros_like(pixel)
    column_bits = tl.zeros_like(pixel)
    for i in tl.static_range(KERNEL):
        row_bits = row_bits | (((row + i >= 0) & (row + i < height)).to(tl.int32) << (i * KERNEL))
        column_bits = column_bits | (((column + i >= 0) & (column + i < width)).to(tl.int32) << i)
    bits = tl.where(pixel < num_pixels, row_bits * column_bits, 0)
    base = tl.multiple_of(((image * height + row) * width + column) * incoming, IN_VECTOR)
    depth = taps * incoming
    first = 0
    end = depth
    if SPLIT:
        depth_a_split = tl.cdiv(tl.cdiv(depth, DEPTH), tl.num_programs(2)) * DEPTH
        first = tl.program_id(2) * depth_a_split
        end = tl.minimum(depth, first + depth_a_split)
    products = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(first, end, DEPTH):
        k = tl.max_contiguous(tl.multiple_of(start + tl.arange(0, DEPTH), IN_VECTOR), IN_VECTOR)
        tap = tl.max_constancy(divide(k, incoming_magic) & 31, IN_VECTOR)  # a hint needs an operation of its own
        k_channel = k - tap * incoming
        offset = ((tap // KERNEL) * width + tap % KERNEL) * incoming + k_channel
        offset = tl.max_contiguous(tl.multiple_of(offset, IN_VECTOR), IN_VECTOR)
        on_image = ((bits[:, None] >> tap[None, :]) & 1) != 0
        a = tl.load(features + (base[:, None] + offset[None, :]), mask=on_image, other=0.0)
        is_k = tl.max_constancy(k < depth, IN_VECTOR)
        if TRANSPOSED:  # weights (incoming, taps, outgoing), taps from the opposite corner: back through a convolution
            weight_row = tl.multiple_of((k_channel * taps + taps - 1 - tap) * outgoing, OUT_VECTOR)
            weight_place = weight_row[:, None] + channel[None, :]
        else:  # weights (outgoing, taps, incoming)
            weight_row = tl.multiple_of(channel * depth, IN_VECTOR)
            weight_place = weight_row[None, :] + k[:, None]
        b = tl.load(weights + weight_place, mask=is_k[:, None] & is_channel[None, :], other=0.0)
        products = tl.dot(a, b, products, input_precision=PRECISION)
    return products


@triton.jit(
    do_not_specialize=[
        "num_pixels",
        "height",
        "width",
        "height_out",
        "width_out",
        "incoming",
        "outgoing",
        "width_magic",
        "height_magic",
        "incoming_magic",
    ]
)
def _convolve(
    features,
    weights,
    out,
    workspace,
    partial_sums,
    partial_squares,
    counters,
    num_pixels,
    height,
    width,
    height_out,
    width_out,
    incoming,
    outgoing,
    width_magic,
    height_magic,
    incoming_magic,
    PRECISION: tl.constexpr,
    STRIDE: tl.constexpr,
    KERNEL: tl.constexpr,
    IN_VECTOR: tl.constexpr,
    OUT_VECTOR: tl.constexpr,
    SPLIT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    pixel, channel, is_channel, place, is_place = tile_places(num_pixels, outgoing, OUT_VECTOR, ROWS, COLUMNS)
    products = _gathered_product(
        features, weights, num_pixels, height, width, height_out, width_out, incoming, outgoing,
        width_magic, height_magic, incoming_magic, pixel, channel, is_channel,
        PRECISION, False, STRIDE, KERNEL, IN_VECTOR, OUT_VECTOR, SPLIT, ROWS, COLUMNS, DEPTH,
    )  # fmt: skip
    is_whole = True
    if SPLIT:
        is_whole, products = sum_over_splits(products, workspace, counters, place, is_place, num_pixels * outgoing)
    if is_whole:
        rounded = products.to(out.dtype.element_ty)
        tl.store(out + place, rounded, mask=is_place)
        values = rounded.to(tl.float32)  # zero outside: what was gathered there was zero
        partial = tl.program_id(0) * outgoing + channel
        tl.store(partial_sums + partial, tl.sum(values, axis=0), mask=is_channel)
        tl.store(partial_squares + partial, tl.sum(values * values, axis=0), mask=is_channel)


@triton.jit(
    do_not_specialize=[
        "num_pixels",
        "height",
        "width",
        "incoming",
        "outgoing",
        "width_magic",
        "height_magic",
        "incoming_magic",
    ]
)
def _input_gradient(
    gradient,
    weights,
    out,
    workspace,
    added,
    added_where,
    before_norm,
    mean,
    inverse_deviation,
    scale,
    shift,
    partial_sums,
    partial_products,
    counters,
    num_pixels,
    height,
    width,
    incoming,
    outgoing,
    width_magic,
    height_magic,
    incoming_magic,
    PRECISION: tl.constexpr,
    KERNEL: tl.constexpr,
    IN_VECTOR: tl.constexpr,
    OUT_VECTOR: tl.constexpr,
    SPLIT: tl.constexpr,
    ADD: tl.constexpr,
    ADD_SOMEWHERE: tl.constexpr,
    RECTIFIED_NORM: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    # Seen from here the gradient's channels come in and the input's channels go out.
    pixel, channel, is_channel, place, is_place = tile_places(num_pixels, outgoing, OUT_VECTOR, ROWS, COLUMNS)
    products = _gathered_product(
        gradient, weights, num_pixels, height, width, height, width, incoming, outgoing,
        width_magic, height_magic, incoming_magic, pixel, channel, is_channel,
        PRECISION, True, 1, KERNEL, IN_VECTOR, OUT_VECTOR, SPLIT, ROWS, COLUMNS, DEPTH,
    )  # fmt: skip
    is_whole = True
    if SPLIT:
        is_whole, products = sum_over_splits(products, workspace, counters, place, is_place, num_pixels * outgoing)
    if is_whole:
        if ADD:
            extra = tl.load(added + place, mask=is_place, other=0.0).to(tl.float32)
            if ADD_SOMEWHERE:
                extra = tl.where(tl.load(added_where + place, mask=is_place, other=0.0) > 0, extra, 0.0)
            products += extra
        if RECTIFIED_NORM:
            # The input was a rectified norm: pass its rectifier, and sum what the norm's gradient needs.
            average, inverse, factor, constant = norm_parameters(
                mean, inverse_deviation, scale, shift, channel, is_channel
            )
            centred = tl.load(before_norm + place, mask=is_place, other=0.0).to(tl.float32) - average
            passed = is_place & (centred * factor + constant > 0)
            products = tl.where(passed, products, 0.0)
        rounded = products.to(out.dtype.element_ty)
        tl.store(out + place, rounded, mask=is_place)
        if RECTIFIED_NORM:
            values = rounded.to(tl.float32)
            partial = tl.program_id(0) * outgoing + channel
            tl.store(partial_sums + partial, tl.sum(values, axis=0), mask=is_channel)
            tl.store(partial_products + partial, tl.sum(values * centred * inverse, axis=0), mask=is_channel)


def convolve(
    features: Tensor, weight: Tensor, stride: int, counters: Tensor, epsilon: float, tiles: Tiles | None = None
) -> tuple[Tensor, Statistics]:
    """Return the convolution of channels-last features, padded to keep their size, and its batch statistics."""
    batch, incoming, height, width = features.shape
    outgoing, _, kernel, _ = weight.shape
    height_out, width_out = (height - 1) // stride + 1, (width - 1) // stride + 1
    num_pixels = batch * height_out * width_out
    tiles = tiles or product_tiles(num_pixels, kernel * kernel * incoming, outgoing, features.itemsize)
    grid = (triton.cdiv(num_pixels, tiles.rows), triton.cdiv(outgoing, tiles.columns), tiles.splits)
    out = empty_features((batch, outgoing, height_out, width_out), features)
    partials = empty_partials(grid[0], outgoing, features)
    launch(
        _convolve, grid, features, weight, out, _workspace(tiles, out), partials[0], partials[1], counters,
        num_pixels, height, width, height_out, width_out, incoming, outgoing,
        magic_of(width_out), magic_of(height_out), magic_of(incoming),
        PRECISION=precision_of(features), STRIDE=stride, KERNEL=kernel,
        IN_VECTOR=vector_of(incoming), OUT_VECTOR=vector_of(outgoing),
        SPLIT=tiles.splits > 1, **tiles.options(),
    )  # fmt: skip
    return out, Statistics(*finish_statistics(partials, num_pixels, epsilon))


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
    batch, channels, height, width = like.shape
    if stride > 1:
        gradient = _spread(gradient, height, width, stride)
    num_pixels, kernel = batch * height * width, weight.shape[2]
    tiles = tiles or product_tiles(num_pixels, kernel * kernel * gradient.shape[1], channels, gradient.itemsize)
    grid = (triton.cdiv(num_pixels, tiles.rows), triton.cdiv(channels, tiles.columns), tiles.splits)
    out = empty_features((batch, channels, height, width), gradient)
    nothing = out  # stands for tensors that the kernel does not touch
    partials = empty_partials(grid[0] if norm else 1, channels, gradient)
    launch(
        _input_gradient, grid, gradient, weight, out, _workspace(tiles, out),
        nothing if added is None else added, nothing if added_where is None else added_where,
        norm.features if norm else nothing,
        norm.statistics.mean if norm else nothing, norm.statistics.inverse_deviation if norm else nothing,
        norm.scale if norm else nothing, norm.shift if norm else nothing,
        partials[0], partials[1], counters,
        num_pixels, height, width, gradient.shape[1], channels,
        magic_of(width), magic_of(height), magic_of(gradient.shape[1]),
        PRECISION=precision_of(gradient), KERNEL=kernel,
        IN_VECTOR=vector_of(gradient.shape[1]), OUT_VECTOR=vector_of(channels),
        SPLIT=tiles.splits > 1,
        ADD=added is not None, ADD_SOMEWHERE=added_where is not None, RECTIFIED_NORM=norm is not None,
        maxnreg=REGISTERS, **tiles.options(),
    )  # fmt: skip
    if norm:
        finish_sums(partials, norm.shift_gradient, norm.scale_gradient)
    return out


def _spread(gradient: Tensor, height: int, width: int, stride: int) -> Tensor:
    """Return a strided convolution's gradient at the input's size, zero between: then the stride is one."""
    batch, channels = gradient.shape[:2]
    spread = empty_features((batch, channels, height, width), gradient).zero_()
    spread[:, :, ::stride, ::stride] = gradient
    return spread


def _workspace(tiles: Tiles, out: Tensor) -> Tensor:
    """Return room for the products of programs that share the depth of their tiles."""
    size = tiles.splits * out.numel() if tiles.splits > 1 else 1
    return torch.empty(size, dtype=torch.float32, device=out.device)
