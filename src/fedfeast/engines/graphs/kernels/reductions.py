"""Sums over all programs of a kernel, in a fixed order: the same input gives the same bits.

A sum is finished by the last program to arrive, whichever that is: programs count themselves. A lane has one array of
counters for all its kernels, which run in order, and each leaves the counters that it used at zero.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedfeast.engines.graphs.tiles import ceil_div

GROUP = tl.constexpr(32)  # neighbouring programs whose sums are added up first, so that none has to read many
# Columns of tiles have the first counters; then come groups of programs within them, and tiles whose depth is split.
GROUP_COUNTERS, TILE_COUNTERS = tl.constexpr(1024), tl.constexpr(32768)


def room_for_sums(programs: int, column_tiles: int, channels: int, like: Tensor) -> Tensor:
    """Return room for the two partial sums a channel of each program and each group of programs."""
    groups = ceil_div(programs, GROUP.value)
    assert column_tiles <= GROUP_COUNTERS.value, "a counter for each column of tiles"
    assert groups * column_tiles <= TILE_COUNTERS.value - GROUP_COUNTERS.value, "a counter for each group"
    return torch.empty(2 * (programs + groups) * channels, dtype=torch.float32, device=like.device)


@triton.jit
def sum_over_programs(first, second, room, counters, channel, is_channel, num_channels, COLUMNS: tl.constexpr):
    """Add up two values a channel over a column of tiles; return whether this program came last, and the sums."""
    programs = tl.num_programs(0)
    group = tl.program_id(0) // GROUP
    num_groups = tl.cdiv(programs, GROUP)
    before = group * GROUP
    counter = counters + GROUP_COUNTERS + group * tl.num_programs(1) + tl.program_id(1)
    came_last, first, second = _sum_over_rows(
        first, second, room + 2 * before * num_channels, counter, tl.program_id(0) - before,
        tl.minimum(GROUP, programs - before), channel, is_channel, num_channels, COLUMNS,
    )  # fmt: skip
    if came_last & (num_groups > 1):
        came_last, first, second = _sum_over_rows(
            first, second, room + 2 * programs * num_channels, counters + tl.program_id(1), group,
            num_groups, channel, is_channel, num_channels, COLUMNS,
        )  # fmt: skip
    return came_last, first, second


@triton.jit
def _sum_over_rows(
    first, second, room, counter, row, num_rows, channel, is_channel, num_channels, COLUMNS: tl.constexpr
):
    """Leave two values a channel in a row of a room; return whether this program came last, and the sums of rows."""
    seconds = room + num_rows * num_channels
    tl.store(room + row * num_channels + channel, first, mask=is_channel)
    tl.store(seconds + row * num_channels + channel, second, mask=is_channel)
    came_last = _comes_last(counter, num_rows)
    if came_last:
        first_sums = tl.zeros((GROUP, COLUMNS), dtype=tl.float32)
        second_sums = tl.zeros((GROUP, COLUMNS), dtype=tl.float32)
        for start in range(0, num_rows, GROUP):
            rows = start + tl.arange(0, GROUP)
            place = rows[:, None] * num_channels + channel[None, :]
            inside = (rows < num_rows)[:, None] & is_channel[None, :]
            # Straight from the second-level cache: other multiprocessors wrote these.
            first_sums += tl.load(room + place, mask=inside, other=0.0, cache_modifier=".cg")
            second_sums += tl.load(seconds + place, mask=inside, other=0.0, cache_modifier=".cg")
        first = tl.sum(first_sums, axis=0)
        second = tl.sum(second_sums, axis=0)
    return came_last, first, second


@triton.jit
def sum_over_splits(products, workspace, counters, place, is_place, size):
    """Add up the products of the programs that share a tile; return whether this one came last, and the sum."""
    tl.store(workspace + tl.program_id(2) * size + place, products, mask=is_place)
    counter = counters + TILE_COUNTERS + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    came_last = _comes_last(counter, tl.num_programs(2))
    if came_last:
        products = tl.zeros_like(products)
        for split in range(tl.num_programs(2)):
            products += tl.load(workspace + split * size + place, mask=is_place, other=0.0, cache_modifier=".cg")
    return came_last, products


@triton.jit
def _comes_last(counter, programs):
    """Count this program, whose stores the others may then read; return whether it is the last of so many."""
    tl.debug_barrier()  # all of its threads have stored before the counter tells
    came_last = tl.atomic_add(counter, 1) == programs - 1
    if came_last:
        tl.store(counter, 0)  # as it was found, for the next launch
    return came_last
