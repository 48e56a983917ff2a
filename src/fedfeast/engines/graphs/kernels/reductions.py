"""Sums over all programs of a kernel, in a fixed order: the same input gives the same bits."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedfeast.engines.graphs.kernels.launching import launch

ROWS, COLUMNS = 256, 8  # partial sums of so many programs and channels that one program adds up at once


def empty_partials(num_rows: int, channels: int, like: Tensor) -> Tensor:
    """Return room for two arrays of partial sums, a row for each program."""
    return torch.empty(2, num_rows, channels, dtype=torch.float32, device=like.device)


@triton.jit(do_not_specialize=["num_rows", "num_channels", "count"])
def _finish(
    first,
    second,
    first_out,
    second_out,
    num_rows,
    num_channels,
    count,
    epsilon,
    STATISTICS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    channel = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    is_channel = channel < num_channels
    first_sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    second_sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(0, num_rows, ROWS):
        row = start + tl.arange(0, ROWS)
        place = row[:, None] * num_channels + channel[None, :]
        inside = (row < num_rows)[:, None] & is_channel[None, :]
        first_sums += tl.load(first + place, mask=inside, other=0.0)
        second_sums += tl.load(second + place, mask=inside, other=0.0)
    first_total = tl.sum(first_sums, axis=0)
    second_total = tl.sum(second_sums, axis=0)
    if STATISTICS:
        first_total = first_total / count
        variance = tl.maximum(second_total / count - first_total * first_total, 0.0)
        second_total = tl.rsqrt(variance + epsilon)
    tl.store(first_out + channel, first_total, mask=is_channel)
    tl.store(second_out + channel, second_total, mask=is_channel)


def finish_sums(partials: Tensor, first_out: Tensor, second_out: Tensor) -> None:
    """Add up the rows of both arrays."""
    _launch_finish(partials, first_out, second_out, 1, 0.0, statistics=False)


def finish_statistics(partials: Tensor, count: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return mean and inverse deviation, given partial sums of values and of their squares."""
    mean, inverse_deviation = torch.empty(2, partials.shape[2], dtype=torch.float32, device=partials.device)
    _launch_finish(partials, mean, inverse_deviation, count, epsilon, statistics=True)
    return mean, inverse_deviation


def _launch_finish(
    partials: Tensor, first_out: Tensor, second_out: Tensor, count: int, epsilon: float, statistics: bool
) -> None:
    _, num_rows, channels = partials.shape
    launch(
        _finish, (triton.cdiv(channels, COLUMNS),), partials[0], partials[1], first_out, second_out,
        num_rows, channels, count, epsilon, STATISTICS=statistics, ROWS=ROWS, COLUMNS=COLUMNS,
    )  # fmt: skip


@triton.jit
def sum_over_splits(products, workspace, counters, place, is_place, size):
    """Add up the products of the programs that share a tile; return whether this one came last, and the sum."""
    tl.store(workspace + tl.program_id(2) * size + place, products, mask=is_place)
    counter = counters + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.debug_barrier()
    came_last = tl.atomic_add(counter, 1) == tl.num_programs(2) - 1
    if came_last:
        tl.store(counter, 0)  # as it was found, for the next launch
        products = tl.zeros_like(products)
        for split in range(tl.num_programs(2)):
            # Straight from the second-level cache: other multiprocessors wrote these.
            products += tl.load(workspace + split * size + place, mask=is_place, other=0.0, cache_modifier=".cg")
    return came_last, products
