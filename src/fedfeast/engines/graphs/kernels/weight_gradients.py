"""Gradients by the weights of convolutions, in Triton: partial sums over parts of the pixels."""

import triton
import triton.language as tl
from torch import Tensor

from fedfeast.engines.graphs.kernels.features import precision_of
from fedfeast.engines.graphs.kernels.geometry import geometry_of
from fedfeast.engines.graphs.kernels.launching import counted, divide, images_of, launch, magic_of
from fedfeast.engines.graphs.tiles import Cut, vector_of

REGISTERS = 128  # that a thread may use: the last store alone would take more, and leave room for fewer programs


@triton.jit(
    do_not_specialize=[
        "num_images",
        "pixels_an_image",
        "pixels_a_part",
        "shifted_width",
        "plain_channels",
        "shifted_channels",
        "channels_magic",
    ]
)
def _weight_gradient(
    plain,
    shifted,
    origins,
    insides,
    out,
    num_images,
    pixels_an_image,
    pixels_a_part,
    shifted_width,
    plain_channels,
    shifted_channels,
    channels_magic,
    COUNTED: tl.constexpr,
    PRECISION: tl.constexpr,
    KERNEL: tl.constexpr,
    SHIFTS_INPUT: tl.constexpr,
    PLAIN_VECTOR: tl.constexpr,
    SHIFTED_VECTOR: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    part = tl.program_id(0)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    taps: tl.constexpr = KERNEL * KERNEL
    is_m = tl.max_constancy(m < plain_channels, PLAIN_VECTOR)
    quotient = divide(n, channels_magic)
    tap = tl.max_constancy(tl.minimum(quotient, 31), SHIFTED_VECTOR)  # beyond the last tap no bit is set
    n_channel = n - quotient * shifted_channels
    offset = ((tap // KERNEL) * shifted_width + tap % KERNEL) * shifted_channels + n_channel
    offset = tl.max_contiguous(tl.multiple_of(offset, SHIFTED_VECTOR), SHIFTED_VECTOR)
    products = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    last = tl.minimum(images_of(num_images, COUNTED) * pixels_an_image, (part + 1) * pixels_a_part)
    for start in range(part * pixels_a_part, last, DEPTH):
        pixel = start + tl.arange(0, DEPTH)
        is_pixel = pixel < last
        plain_row = tl.multiple_of(pixel * plain_channels, PLAIN_VECTOR)
        a = tl.load(plain + (plain_row[:, None] + m[None, :]), mask=is_pixel[:, None] & is_m[None, :], other=0.0)
        origin = tl.load(origins + pixel, mask=is_pixel, other=0)
        bits = tl.load(insides + pixel, mask=is_pixel, other=0)
        place = tl.multiple_of(origin * shifted_channels, SHIFTED_VECTOR)[:, None] + offset[None, :]
        b = tl.load(shifted + place, mask=((bits[:, None] >> tap[None, :]) & 1) != 0, other=0.0)
        products = tl.dot(tl.trans(a), b, products, input_precision=PRECISION)
    is_n = n < taps * shifted_channels
    if SHIFTS_INPUT:  # m is an output channel, n a tap and an input channel: the order of storage
        place = m[:, None] * (taps * shifted_channels) + n[None, :]
    else:  # m is an input channel; the gradient was shifted, so taps count from the opposite corner
        place = ((n_channel * taps + taps - 1 - tap) * plain_channels)[None, :] + m[:, None]
    out += part * (taps * plain_channels * shifted_channels)
    tl.store(out + place, products, mask=is_m[:, None] & is_n[None, :])


def weight_gradient(
    features: Tensor,
    gradient: Tensor,
    stride: int,
    kernel: int,
    out: Tensor,
    cut: Cut,
    num_images: Tensor | None = None,
) -> None:
    """Store the partial sums (parts, out, kernel, kernel, in) of the gradient by a convolution's weight."""
    assert cut.shifts_input or stride == 1
    plain, shifted = (gradient, features) if cut.shifts_input else (features, gradient)
    plain_channels, shifted_channels = plain.shape[1], shifted.shape[1]
    pixels_an_image, tiles = plain.shape[2] * plain.shape[3], cut.tiles
    geometry = geometry_of(*features.shape[:1], *features.shape[2:], stride, kernel, features.device)
    grid = (
        cut.parts,
        triton.cdiv(plain_channels, tiles.rows),
        triton.cdiv(kernel * kernel * shifted_channels, tiles.columns),
    )
    launch(
        _weight_gradient,
        grid,
        plain=plain,
        shifted=shifted,
        origins=geometry.origin,
        insides=geometry.inside,
        out=out,
        pixels_an_image=pixels_an_image,
        pixels_a_part=triton.cdiv(len(plain) * pixels_an_image, cut.parts),
        shifted_width=shifted.shape[3],
        plain_channels=plain_channels,
        shifted_channels=shifted_channels,
        channels_magic=magic_of(shifted_channels),
        **counted(num_images, len(plain)),
        PRECISION=precision_of(features),
        KERNEL=kernel,
        SHIFTS_INPUT=cut.shifts_input,
        PLAIN_VECTOR=vector_of(plain_channels),
        SHIFTED_VECTOR=vector_of(shifted_channels),
        maxnreg=REGISTERS,
        **tiles.options(),
    )
