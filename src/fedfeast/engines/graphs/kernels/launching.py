"""Launches, and compiling ahead: tried on tensors without memory, every kernel can be compiled before it is needed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

Launches = dict[tuple[Any, ...], tuple[Any, tuple[Any, ...], dict[str, Any]]]

_collected: ContextVar[Launches | None] = ContextVar("collected", default=None)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **named: Any) -> None:
    """Launch a kernel, or note it down where its tensors have no memory; capitals name compile-time arguments."""
    launches = _collected.get()
    if launches is None:
        kernel[grid](*arguments, **named)
        return
    values = dict(zip(kernel.arg_names, arguments, strict=False)) | named
    passed = [values.pop(name) for name in kernel.arg_names if not name.isupper()]
    # A type instead of a tensor makes Triton assume memory of that type.
    mocked = tuple(value.dtype if isinstance(value, Tensor) else value for value in passed)
    kinds = tuple(one if not isinstance(one, int | float) else type(one) for one in mocked)
    launches.setdefault((id(kernel), kinds, *values.items()), (kernel, mocked, values))


@contextmanager
def collected_launches() -> Iterator[Launches]:
    """Note down the launches made inside, each kind once, instead of making them."""
    launches: Launches = {}
    token = _collected.set(launches)
    try:
        yield launches
    finally:
        _collected.reset(token)


def compile_launches(launches: Launches, device: torch.device, threads: int) -> None:
    """Compile the kernels of noted launches for a device, several at a time."""

    def enter() -> None:
        if device.type == "cuda":
            torch.cuda.set_device(device)  # Triton compiles for the thread's own

    with ThreadPoolExecutor(threads, initializer=enter) as pool:
        list(pool.map(lambda one: one[0].warmup(*one[1], grid=(1,), **one[2]), launches.values()))


def magic_of(divisor: int) -> int:
    """Return the factor by which ``divide`` divides, as a signed 32-bit number."""
    magic = -(-(1 << 32) // divisor) if divisor > 1 else 0
    return magic - (1 << 32) if magic >= 1 << 31 else magic


@triton.jit
def divide(number, magic):
    """Return number // divisor by a multiplication: number is not negative, number * divisor below 2**32."""
    # No multiplier divides by one: there the magic number is zero and the number itself is added.
    return tl.umulhi(number.to(tl.uint32), magic.to(tl.uint32)).to(tl.int32) + number * (magic == 0).to(tl.int32)


def counted(num_images: Tensor | None, batch: int) -> dict[str, Any]:
    """Return a kernel's arguments for the number of images: all of the batch, or as many as it finds in memory."""
    return {"num_images": batch if num_images is None else num_images, "COUNTED": num_images is not None}


@triton.jit
def images_of(num_images, COUNTED: tl.constexpr):
    """Return the number of images, which a counting kernel reads from memory: a captured launch serves any."""
    if COUNTED:
        num_images = tl.load(num_images)
    return num_images


@triton.jit
def tile_places(num_pixels, num_channels, VECTOR: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return a program's pixels and channels of channels-last features, and where its tile lies, each with a mask."""
    pixel = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_channel = tl.max_constancy(channel < num_channels, VECTOR)
    place = tl.multiple_of(pixel * num_channels, VECTOR)[:, None] + channel[None, :]
    is_place = (pixel < num_pixels)[:, None] & is_channel[None, :]
    return pixel, channel, is_channel, place, is_place
