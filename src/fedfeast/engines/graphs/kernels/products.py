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
from fedfeast.engines.graphs.kernels.launching import counted, divide, images_of, launch, magic_of, tile_places
from fedfeast.engines.graphs.kernels.reductions import room_for_sums, sum_over_programs, sum_over_splits
from fedfeast.engines.graphs.tiles import LARGEST, Tiles, product_tiles, vector_of

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
        "num_images",
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
    mean,
    inverse_deviation,
    workspace,
    room,
    counters,
    epsilon,
    num_images,
    height,
    width,
    height_out,
    width_out,
    incoming,
    outgoing,
    width_magic,
    height_magic,
    incoming_magic,
    COUNTED: tl.constexpr,
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
    num_pixels = images_of(num_images, COUNTED) * height_out * width_out
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
        came_last, total, squares = sum_over_programs(
            tl.sum(values, axis=0), tl.sum(values * values, axis=0),
            room, counters, channel, is_channel, outgoing, COLUMNS,
        )  # fmt: skip
        if came_last:
            average = total / num_pixels
            variance = tl.maximum(squares / num_pixels - average * average, 0.0)
            tl.store(mean + channel, average, mask=is_channel)
            tl.store(inverse_deviation + channel, tl.rsqrt(variance + epsilon), mask=is_channel)


@triton.jit(
    do_not_specialize=[
        "num_images",
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
    added,
    masked_by,
    before_norm,
    mean,
    inverse_deviation,
    scale,
    shift,
    scale_gradient,
    shift_gradient,
    workspace,
    room,
    counters,
    num_images,
    height,
    width,
    incoming,
    outgoing,
    width_magic,
    height_magic,
    incoming_magic,
    COUNTED: tl.constexpr,
    PRECISION: tl.constexpr,
    KERNEL: tl.constexpr,
    IN_VECTOR: tl.constexpr,
    OUT_VECTOR: tl.constexpr,
    SPLIT: tl.constexpr,
    ADD: tl.constexpr,
    MASK: tl.constexpr,
    NORM: tl.constexpr,
    RECTIFIED_BY_NORM: tl.constexpr,
    SIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    # Seen from here the gradient's channels come in and the input's channels go out.
    num_pixels = images_of(num_images, COUNTED) * height * width
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
            products += tl.load(added + place, mask=is_place, other=0.0).to(tl.float32)
        if MASK:
            products = tl.where(tl.load(masked_by + place, mask=is_place, other=0.0) > 0, products, 0.0)
        if NORM:
            average, inverse, factor, constant = norm_parameters(
                mean, inverse_deviation, scale, shift, channel, is_channel
            )
            centred = tl.load(before_norm + place, mask=is_place, other=0.0).to(tl.float32) - average[None, :]
            passes = centred * factor[None, :] + constant[None, :] > 0
            if RECTIFIED_BY_NORM:
                products = tl.where(passes, products, 0.0)
        rounded = products.to(out.dtype.element_ty)
        tl.store(out + place, rounded, mask=is_place)
        if NORM:
            values = rounded.to(tl.float32)  # zero outside
            if not (RECTIFIED_BY_NORM or SIGNED):
                values = tl.where(passes, values, 0.0)
            came_last, total, product = sum_over_programs(
                tl.sum(values, axis=0), tl.sum(values * centred, axis=0) * inverse,
                room, counters, channel, is_channel, outgoing, COLUMNS,
            )  # fmt: skip
            if came_last:
                tl.store(shift_gradient + channel, total, mask=is_channel)
                tl.store(scale_gradient + channel, product, mask=is_channel)


def convolve(
    features: Tensor,
    weight: Tensor,
    stride: int,
    counters: Tensor,
    epsilon: float,
    tiles: Tiles | None = None,
    num_images: Tensor | None = None,
) -> tuple[Tensor, Statistics]:
    """Return the convolution of channels-last features, padded to keep their size, and its batch statistics."""
    batch, incoming, height, width = features.shape
    outgoing, _, kernel, _ = weight.shape
    height_out, width_out = (height - 1) // stride + 1, (width - 1) // stride + 1
    num_pixels = batch * height_out * width_out
    tiles = tiles or product_tiles(num_pixels, kernel * kernel * incoming, outgoing, features.itemsize)
    grid = (triton.cdiv(num_pixels, tiles.rows), triton.cdiv(outgoing, tiles.columns), tiles.splits)
    out = empty_features((batch, outgoing, height_out, width_out), features)
    statistics = Statistics(*torch.empty(2, outgoing, dtype=torch.float32, device=features.device))
    launch(
        _convolve,
        grid,
        features=features,
        weights=weight,
        out=out,
        mean=statistics.mean,
        inverse_deviation=statistics.inverse_deviation,
        workspace=_workspace(tiles, out),
        room=room_for_sums(grid[0], grid[1], outgoing, features),
        counters=counters,
        epsilon=epsilon,
        height=height,
        width=width,
        height_out=height_out,
        width_out=width_out,
        incoming=incoming,
        outgoing=outgoing,
        width_magic=magic_of(width_out),
        height_magic=magic_of(height_out),
        incoming_magic=magic_of(incoming),
        **counted(num_images, batch),
        PRECISION=precision_of(features),
        STRIDE=stride,
        KERNEL=kernel,
        IN_VECTOR=vector_of(incoming),
        OUT_VECTOR=vector_of(outgoing),
        SPLIT=tiles.splits > 1,
        **tiles.options(),
    )
    return out, statistics


def input_gradient(
    gradient: Tensor,
    weight: Tensor,
    like: Tensor,
    stride: int,
    counters: Tensor,
    *,
    added: Tensor | None = None,
    masked_by: Tensor | None = None,
    norm: Norm | None = None,
    rectified_by_norm: bool = False,
    signed: bool = False,
    tiles: Tiles | None = None,
    num_images: Tensor | None = None,
) -> Tensor:
    """Return the gradient by a convolution's input, which is shaped like another tensor.

    ``added`` comes on top; then the gradient is zero where ``masked_by`` is not positive. ``norm`` is the input's
    normalisation, whose own gradients are stored: its rectified output was the input itself (``rectified_by_norm``,
    and the gradient is masked by it too), or only a summand of it, which was not rectified where it is ``signed``.
    """
    batch, channels, height, width = like.shape
    if stride > 1:
        gradient = spread_gradient(gradient, height, width, stride)
    num_pixels, incoming, kernel = batch * height * width, gradient.shape[1], weight.shape[2]
    # What follows the products takes as many registers again.
    tiles = tiles or product_tiles(num_pixels, kernel * kernel * incoming, channels, gradient.itemsize, LARGEST // 2)
    grid = (triton.cdiv(num_pixels, tiles.rows), triton.cdiv(channels, tiles.columns), tiles.splits)
    out = empty_features((batch, channels, height, width), gradient)
    # Where there is nothing to add, mask or normalise, the output stands for what the kernel does not touch.
    launch(
        _input_gradient,
        grid,
        gradient=gradient,
        weights=weight,
        out=out,
        added=out if added is None else added,
        masked_by=out if masked_by is None else masked_by,
        before_norm=norm.features if norm else out,
        mean=norm.statistics.mean if norm else out,
        inverse_deviation=norm.statistics.inverse_deviation if norm else out,
        scale=norm.scale if norm else out,
        shift=norm.shift if norm else out,
        scale_gradient=norm.scale_gradient if norm else out,
        shift_gradient=norm.shift_gradient if norm else out,
        workspace=_workspace(tiles, out),
        room=room_for_sums(grid[0], grid[1], channels, gradient) if norm else out,
        counters=counters,
        height=height,
        width=width,
        incoming=incoming,
        outgoing=channels,
        width_magic=magic_of(width),
        height_magic=magic_of(height),
        incoming_magic=magic_of(incoming),
        **counted(num_images, batch),
        PRECISION=precision_of(gradient),
        KERNEL=kernel,
        IN_VECTOR=vector_of(incoming),
        OUT_VECTOR=vector_of(channels),
        SPLIT=tiles.splits > 1,
        ADD=added is not None,
        MASK=masked_by is not None,
        NORM=norm is not None,
        RECTIFIED_BY_NORM=rectified_by_norm,
        SIGNED=signed,
        maxnreg=REGISTERS,
        **tiles.options(),
    )
    return out


def spread_gradient(gradient: Tensor, height: int, width: int, stride: int) -> Tensor:
    """Return a strided convolution's gradient at the input's size, zero between: then the stride is one."""
    batch, channels = gradient.shape[:2]
    spread = empty_features((batch, channels, height, width), gradient).zero_()
    spread[:, :, ::stride, ::stride] = gradient
    return spread


def _workspace(tiles: Tiles, out: Tensor) -> Tensor:
    """Return room for the products of programs that share the depth of their tiles."""
    size = tiles.splits * out.numel() if tiles.splits > 1 else 1
    return torch.empty(size, dtype=torch.float32, device=out.device)
