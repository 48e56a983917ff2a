"""Sums over all programs of a kernel, in a fixed order: the same input gives the same bits."""

import torch
import triton
import triton.language as tl
from torch import Tensor

COUNTERS = 65536  # zeros that launches on one stream share; each leaves them as it found them
STATISTICS_COUNTERS = tl.constexpr(4096)  # the first of them count programs that share a column, the rest a tile


def zero_counters(device: torch.device | str) -> Tensor:
    """Return the counters of one stream."""
    return torch.zeros(COUNTERS, dtype=torch.int32, device=device)


def empty_partials(num_rows: int, channels: int, like: Tensor, group: int) -> Tensor:
    """Return room for two arrays of partial sums, a row for each program and each group of them."""
    rows = num_rows + triton.cdiv(num_rows, group)
    return torch.empty(2, rows, channels, dtype=torch.float32, device=like.device)


@triton.jit
def is_last(counter, expected):
    """Count the programs that came this far; the last of them may read what all others stored."""
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1) == expected - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit
def _sum_rows(first, second, start, end, channel, num_channels, GROUP: tl.constexpr):
    """Return the sums of some rows of two (rows, channels) arrays, always in the same order."""
    row = start + tl.arange(0, GROUP)
    place = row[:, None] * num_channels + channel[None, :]
    inside = (row < end)[:, None] & (channel < num_channels)[None, :]
    # Straight from the second-level cache: other multiprocessors wrote these.
    first_rows = tl.load(first + place, mask=inside, other=0.0, cache_modifier=".cg")
    second_rows = tl.load(second + place, mask=inside, other=0.0, cache_modifier=".cg")
    return tl.sum(first_rows, axis=0), tl.sum(second_rows, axis=0)


@triton.jit
def sum_over_programs(first, second, counters, channel, num_channels, GROUP: tl.constexpr):
    """Add up what the programs of a column stored in their rows of two arrays: by groups, then over the groups.

    Returns whether this program came last, and for that one the two sums. Behind the rows of the programs the arrays
    have one row for every group.
    """
    num_rows = tl.num_programs(0)
    num_groups = tl.cdiv(num_rows, GROUP)
    group = tl.program_id(0) // GROUP
    counters += tl.program_id(1) * (num_groups + 1)
    first_sums = tl.zeros_like(channel).to(tl.float32)
    second_sums = tl.zeros_like(channel).to(tl.float32)
    came_last = False
    group_end = tl.minimum((group + 1) * GROUP, num_rows)
    if is_last(counters + 1 + group, group_end - group * GROUP):
        first_sums, second_sums = _sum_rows(first, second, group * GROUP, group_end, channel, num_channels, GROUP)
        came_last = num_groups == 1
        if num_groups > 1:
            place = (num_rows + group) * num_channels + channel
            tl.store(first + place, first_sums, mask=channel < num_channels)
            tl.store(second + place, second_sums, mask=channel < num_channels)
            came_last = is_last(counters, num_groups)
            if came_last:
                first_sums = tl.zeros_like(first_sums)
                second_sums = tl.zeros_like(second_sums)
                for start in range(num_rows, num_rows + num_groups, GROUP):
                    more_first, more_second = _sum_rows(
                        first, second, start, num_rows + num_groups, channel, num_channels, GROUP
                    )
                    first_sums += more_first
                    second_sums += more_second
    return came_last, first_sums, second_sums


@triton.jit
def sum_over_splits(products, workspace, counters, place, is_place, size):
    """Add up the products of the programs that share a tile; return whether this one came last, and the sum."""
    tl.store(workspace + tl.program_id(2) * size + place, products, mask=is_place)
    counter = counters + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    came_last = is_last(counter, tl.num_programs(2))
    if came_last:
        products = tl.zeros_like(products)
        for split in range(tl.num_programs(2)):
            products += tl.load(workspace + split * size + place, mask=is_place, other=0.0, cache_modifier=".cg")
    return came_last, products
