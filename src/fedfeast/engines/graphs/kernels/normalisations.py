"""Batch normalisation with all that surrounds it, in Triton: rectifier, addition, and their gradients.

Where values do not meet, channels-last features are one long row of elements. A program takes SIZE of them at a time,
and as many programs run as make its elements those of the same channels in every turn: their parameters are loaded
once, and no width leaves lanes idle.
"""

from math import gcd

import triton
import triton.language as tl
from torch import Tensor

from fedfeast.engines.graphs.kernels.features import Norm, empty_features, norm_parameters
from fedfeast.engines.graphs.kernels.launching import counted, divide, images_of, launch, magic_of, tile_places
from fedfeast.engines.graphs.kernels.reductions import room_for_sums, sum_over_programs
from fedfeast.engines.graphs.tiles import ceil_div, tile_columns, vector_of

SIZE = 1024  # elements that a program takes at a time: a vector of eight for each of its threads
POOLED_ELEMENTS = 4096  # of a tile that is pooled
SUMMED_ELEMENTS = 2048  # of a tile that is summed
PROGRAMS = 1056  # that share a long row: eight for each multiprocessor of a large device
SUMMING_PROGRAMS = 528


@triton.jit
def _channels(num_channels, channels_magic, VECTOR: tl.constexpr, SIZE: tl.constexpr):
    """Return the channels of this program's elements."""
    channel = (tl.program_id(0) * SIZE) % num_channels + tl.arange(0, SIZE)
    channel = channel - divide(channel, channels_magic) * num_channels
    return tl.max_contiguous(tl.multiple_of(channel, VECTOR), VECTOR)


@triton.jit(do_not_specialize=["num_images", "elements_an_image", "num_channels", "channels_magic"])
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
    num_images,
    elements_an_image,
    num_channels,
    channels_magic,
    COUNTED: tl.constexpr,
    VECTOR: tl.constexpr,
    ADD: tl.constexpr,
    NORMALISE_ADDED: tl.constexpr,
    SIGNED: tl.constexpr,
    SIZE: tl.constexpr,
):
    num_elements = images_of(num_images, COUNTED) * elements_an_image
    channel = _channels(num_channels, channels_magic, VECTOR, SIZE)
    average, _, factor, constant = norm_parameters(mean, inverse_deviation, scale, shift, channel, True)
    if NORMALISE_ADDED:
        added_average, _, added_factor, added_constant = norm_parameters(
            added_mean, added_inverse_deviation, added_scale, added_shift, channel, True
        )
    for start in range(tl.program_id(0) * SIZE, num_elements, tl.num_programs(0) * SIZE):
        place = start + tl.arange(0, SIZE)
        is_place = tl.max_constancy(place < num_elements, VECTOR)
        values = tl.load(features + place, mask=is_place, other=0.0).to(tl.float32)
        values = (values - average) * factor + constant
        if not SIGNED:
            values = tl.maximum(values, 0.0)
        if ADD:
            extra = tl.load(added + place, mask=is_place, other=0.0).to(tl.float32)
            if NORMALISE_ADDED:
                extra = (extra - added_average) * added_factor + added_constant
            values = tl.maximum(values + extra, 0.0)
        tl.store(out + place, values.to(out.dtype.element_ty), mask=is_place)


@triton.jit(do_not_specialize=["num_images", "pixels_an_image", "num_channels", "channels_magic"])
def _norm_gradient(
    gradient,
    features,
    mean,
    inverse_deviation,
    scale,
    shift,
    scale_gradient,
    shift_gradient,
    result,
    num_images,
    pixels_an_image,
    num_channels,
    channels_magic,
    COUNTED: tl.constexpr,
    VECTOR: tl.constexpr,
    RECTIFIED: tl.constexpr,
    SIZE: tl.constexpr,
):
    num_pixels = images_of(num_images, COUNTED) * pixels_an_image
    num_elements = num_pixels * num_channels
    channel = _channels(num_channels, channels_magic, VECTOR, SIZE)
    average, inverse, factor, constant = norm_parameters(mean, inverse_deviation, scale, shift, channel, True)
    mean_gradient = tl.load(shift_gradient + channel) / num_pixels
    slope = inverse * tl.load(scale_gradient + channel) / num_pixels
    for start in range(tl.program_id(0) * SIZE, num_elements, tl.num_programs(0) * SIZE):
        place = start + tl.arange(0, SIZE)
        is_place = tl.max_constancy(place < num_elements, VECTOR)
        centred = tl.load(features + place, mask=is_place, other=0.0).to(tl.float32) - average
        values = tl.load(gradient + place, mask=is_place, other=0.0).to(tl.float32)
        if RECTIFIED:
            values = tl.where(centred * factor + constant > 0, values, 0.0)
        values = factor * (values - mean_gradient - centred * slope)
        tl.store(result + place, values.to(result.dtype.element_ty), mask=is_place)


@triton.jit(do_not_specialize=["num_images", "pixels_an_image", "num_channels", "pixels_a_part"])
def _sum_gradients(
    gradient,
    out,
    masked,
    features,
    mean,
    inverse_deviation,
    scale,
    shift,
    scale_gradient,
    shift_gradient,
    room,
    counters,
    num_images,
    pixels_an_image,
    num_channels,
    pixels_a_part,
    COUNTED: tl.constexpr,
    VECTOR: tl.constexpr,
    RECTIFY: tl.constexpr,
    SIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    part = tl.program_id(0)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_channel = tl.max_constancy(channel < num_channels, VECTOR)
    average, inverse, factor, constant = norm_parameters(mean, inverse_deviation, scale, shift, channel, is_channel)
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    products = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    last = tl.minimum(images_of(num_images, COUNTED) * pixels_an_image, (part + 1) * pixels_a_part)
    for start in range(part * pixels_a_part, last, ROWS):
        pixel = start + tl.arange(0, ROWS)
        place = tl.multiple_of(pixel * num_channels, VECTOR)[:, None] + channel[None, :]
        is_place = (pixel < last)[:, None] & is_channel[None, :]
        centred = tl.load(features + place, mask=is_place, other=0.0).to(tl.float32) - average[None, :]
        values = tl.load(gradient + place, mask=is_place, other=0.0)
        if RECTIFY:
            values = tl.where(tl.load(out + place, mask=is_place, other=0.0) > 0, values, 0.0)
            tl.store(masked + place, values, mask=is_place)
            if not SIGNED:
                values = tl.where(centred * factor[None, :] + constant[None, :] > 0, values, 0.0)
        sums += values.to(tl.float32)
        products += values.to(tl.float32) * centred
    came_last, total, product = sum_over_programs(
        tl.sum(sums, axis=0), tl.sum(products, axis=0) * inverse,
        room, counters, channel, is_channel, num_channels, COLUMNS,
    )  # fmt: skip
    if came_last:
        tl.store(shift_gradient + channel, total, mask=is_channel)
        tl.store(scale_gradient + channel, product, mask=is_channel)


def normalise(
    norm: Norm,
    added: Tensor | None = None,
    added_norm: Norm | None = None,
    room: Tensor | None = None,
    num_images: Tensor | None = None,
    signed: bool = False,
) -> Tensor:
    """Return the rectified normalisation; ``added`` or another normalisation comes on top before a second rectifier.

    ``signed``: that is the only one.
    """
    features, other = norm.features, added_norm or norm
    out = empty_features(features.shape, features) if room is None else room
    channels = features.shape[1]
    launch(
        _normalise,
        (row_programs(features.numel(), channels),),
        features=features,
        mean=norm.statistics.mean,
        inverse_deviation=norm.statistics.inverse_deviation,
        scale=norm.scale,
        shift=norm.shift,
        added=other.features if added is None else added,
        added_mean=other.statistics.mean,
        added_inverse_deviation=other.statistics.inverse_deviation,
        added_scale=other.scale,
        added_shift=other.shift,
        out=out,
        elements_an_image=features.numel() // len(features),
        num_channels=channels,
        channels_magic=magic_of(channels),
        **counted(num_images, len(features)),
        VECTOR=vector_of(channels),
        ADD=added is not None or added_norm is not None,
        NORMALISE_ADDED=added_norm is not None,
        SIGNED=signed,
        SIZE=SIZE,
    )
    return out


def norm_gradient(gradient: Tensor, norm: Norm, rectified: bool, num_images: Tensor | None = None) -> Tensor:
    """Return the gradient by a normalisation's input, its scale's and shift's gradients being stored already.

    ``rectified`` tells of a rectifier behind the normalisation that the gradient has not passed yet.
    """
    features, channels = norm.features, norm.features.shape[1]
    result = empty_features(features.shape, features)
    launch(
        _norm_gradient,
        (row_programs(features.numel(), channels),),
        gradient=gradient,
        features=features,
        mean=norm.statistics.mean,
        inverse_deviation=norm.statistics.inverse_deviation,
        scale=norm.scale,
        shift=norm.shift,
        scale_gradient=norm.scale_gradient,
        shift_gradient=norm.shift_gradient,
        result=result,
        pixels_an_image=_pixels_an_image(features),
        num_channels=channels,
        channels_magic=magic_of(channels),
        **counted(num_images, len(features)),
        VECTOR=vector_of(channels),
        RECTIFIED=rectified,
        SIZE=SIZE,
    )
    return result


def rectify_gradient(
    gradient: Tensor,
    out: Tensor,
    norm: Norm,
    counters: Tensor,
    num_images: Tensor | None = None,
    signed: bool = False,
) -> Tensor:
    """Return the gradient by a block's output, zero where that is not positive; store the gradients of its last norm.

    That norm was rectified before the addition, unless it is ``signed``.
    """
    masked = empty_features(out.shape, out)
    _launch_sum(gradient, norm, counters, out, masked, num_images, signed)
    return masked


def sum_gradients(gradient: Tensor, norm: Norm, counters: Tensor, num_images: Tensor | None = None) -> None:
    """Store the gradients by scale and shift of a normalisation without a rectifier of its own."""
    _launch_sum(gradient, norm, counters, None, None, num_images, signed=False)


def _launch_sum(
    gradient: Tensor,
    norm: Norm,
    counters: Tensor,
    out: Tensor | None,
    masked: Tensor | None,
    num_images: Tensor | None,
    signed: bool,
) -> None:
    features = norm.features
    channels, pixels_an_image = features.shape[1], _pixels_an_image(features)
    num_pixels = len(features) * pixels_an_image
    columns = tile_columns(channels)
    rows, column_tiles = SUMMED_ELEMENTS // columns, triton.cdiv(channels, columns)
    parts = min(max(1, SUMMING_PROGRAMS // column_tiles), triton.cdiv(num_pixels, rows))
    launch(
        _sum_gradients,
        (parts, column_tiles),
        gradient=gradient,
        out=gradient if out is None else out,
        masked=gradient if masked is None else masked,
        features=features,
        mean=norm.statistics.mean,
        inverse_deviation=norm.statistics.inverse_deviation,
        scale=norm.scale,
        shift=norm.shift,
        scale_gradient=norm.scale_gradient,
        shift_gradient=norm.shift_gradient,
        room=room_for_sums(parts, column_tiles, channels, features),
        counters=counters,
        pixels_an_image=pixels_an_image,
        num_channels=channels,
        pixels_a_part=triton.cdiv(num_pixels, parts),
        **counted(num_images, len(features)),
        VECTOR=vector_of(channels),
        RECTIFY=out is not None,
        SIGNED=signed,
        ROWS=rows,
        COLUMNS=columns,
    )


def row_programs(num_elements: int, channels: int) -> int:
    """Return how many programs share a long row, each meeting the same channels in every turn."""
    blocks, period = ceil_div(num_elements, SIZE), channels // gcd(channels, SIZE)
    most = max(1, PROGRAMS // period) * period
    if blocks <= most:
        return blocks
    turns = ceil_div(blocks, most)
    return ceil_div(ceil_div(blocks, turns), period) * period  # no more than these turns need


@triton.jit(do_not_specialize=["num_images", "height", "width", "height_out", "width_out", "num_channels"])
def _pool(
    features,
    out,
    num_images,
    height,
    width,
    height_out,
    width_out,
    num_channels,
    COUNTED: tl.constexpr,
    VECTOR: tl.constexpr,
    STRIDE: tl.constexpr,
    BACKWARD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    # Forward a program writes pooled pixels; backward, with gradients for features, pixels of the input.
    own_width = width if BACKWARD else width_out
    own_height = height if BACKWARD else height_out
    num_pixels = images_of(num_images, COUNTED) * own_height * own_width
    pixel, channel, is_channel, place, is_place = tile_places(num_pixels, num_channels, VECTOR, ROWS, COLUMNS)
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


def pool(features: Tensor, stride: int, num_images: Tensor | None = None) -> Tensor:
    """Return the means over windows of stride x stride pixels; windows at the edge may be smaller."""
    batch, channels, height, width = features.shape
    out = empty_features((batch, channels, -(-height // stride), -(-width // stride)), features)
    _launch_pool(features, out, features, out, stride, num_images, backward=False)
    return out


def pool_gradient(gradient: Tensor, features: Tensor, stride: int, num_images: Tensor | None = None) -> Tensor:
    """Return the gradient by the input of ``pool``."""
    out = empty_features(features.shape, features)
    _launch_pool(gradient, out, features, gradient, stride, num_images, backward=True)
    return out


def _launch_pool(
    source: Tensor,
    out: Tensor,
    whole: Tensor,
    pooled: Tensor,
    stride: int,
    num_images: Tensor | None,
    backward: bool,
) -> None:
    num_pixels, channels = len(out) * _pixels_an_image(out), out.shape[1]
    columns = tile_columns(channels)
    rows = POOLED_ELEMENTS // columns
    launch(
        _pool,
        (triton.cdiv(num_pixels, rows), triton.cdiv(channels, columns)),
        features=source,
        out=out,
        height=whole.shape[2],
        width=whole.shape[3],
        height_out=pooled.shape[2],
        width_out=pooled.shape[3],
        num_channels=channels,
        **counted(num_images, len(out)),
        VECTOR=vector_of(channels),
        STRIDE=stride,
        BACKWARD=backward,
        ROWS=rows,
        COLUMNS=columns,
    )


def _pixels_an_image(features: Tensor) -> int:
    return features.shape[2] * features.shape[3]
