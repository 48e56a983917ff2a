import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from fedfeast.engines.graphs.kernels.launching import launch
from fedfeast.engines.graphs.kernels.reductions import GROUP, TILE_COUNTERS, room_for_sums, sum_over_programs
from fedfeast.engines.graphs.programs import COUNTERS
from fedfeast.engines.graphs.tiles import PROGRAMS
from fedfeast.randomness import named_generator

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
COLUMNS = 8

rows = pytest.mark.parametrize("rows", [1, 5, GROUP.value, GROUP.value + 1, 3 * GROUP.value - 5])
widths = pytest.mark.parametrize("channels", [1, COLUMNS, 3 * COLUMNS - 1])


@triton.jit  # type: ignore[untyped-decorator]
def _sum_rows(firsts, seconds, out, room, counters, num_channels, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    channel = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_channel = channel < num_channels
    place = tl.program_id(0) * num_channels + channel
    first = tl.load(firsts + place, mask=is_channel, other=0.0)
    second = tl.load(seconds + place, mask=is_channel, other=0.0)
    came_last, first, second = sum_over_programs(
        first, second, room, counters, channel, is_channel, num_channels, COLUMNS
    )
    if came_last:
        tl.store(out + channel, first, mask=is_channel)
        tl.store(out + num_channels + channel, second, mask=is_channel)


def sums_over_programs(values: torch.Tensor, counters: torch.Tensor) -> torch.Tensor:
    """Return the sums (2, channels) over programs of values (2, programs, channels)."""
    _, programs, channels = values.shape
    column_tiles = triton.cdiv(channels, COLUMNS)
    room = room_for_sums(programs, column_tiles, channels, values).fill_(torch.nan)
    out = torch.full((2 * channels + 1,), torch.nan, device=DEVICE)
    launch(_sum_rows, (programs, column_tiles), values[0], values[1], out, room, counters, channels, COLUMNS=COLUMNS)
    assert out[-1].isnan(), "nothing is written beyond the last channel"
    return out[:-1].view(2, channels)


def drawn(*shape: int) -> torch.Tensor:
    return torch.from_numpy(named_generator(0, *shape).normal(size=shape)).float().to(DEVICE)


@rows
@widths
def test_the_last_program_adds_up_all(rows: int, channels: int) -> None:
    values, counters = drawn(2, rows, channels), torch.zeros(COUNTERS, dtype=torch.int32, device=DEVICE)
    got = sums_over_programs(values, counters)
    torch.testing.assert_close(got.double(), values.double().sum(1), rtol=1e-4, atol=1e-4)
    assert not counters.any(), "counters are left as they were found"
    assert torch.equal(sums_over_programs(values, counters), got), "the next launch counts from zero"


def test_sums_take_a_fixed_order() -> None:
    values = drawn(2, 2 * GROUP.value, 3)
    counters = torch.zeros(COUNTERS, dtype=torch.int32, device=DEVICE)
    got = sums_over_programs(values, counters)
    groups = values.cpu().numpy().reshape(2, 2, GROUP.value, 3)
    expected = groups.sum(axis=2, dtype=np.float64).sum(axis=1)
    assert np.allclose(got.cpu().numpy(), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(sums_over_programs(values, counters), got)


def test_room_for_sums() -> None:
    room = room_for_sums(GROUP.value + 1, 2, 5, torch.empty(1, dtype=torch.bfloat16, device=DEVICE))
    assert room.shape == (2 * (GROUP.value + 1 + 2) * 5,), "a row for each program and each of two groups"
    assert (room.dtype, room.device.type) == (torch.float32, DEVICE.type)
    with pytest.raises(AssertionError, match="each column"):
        room_for_sums(1, 1025, 8, room)
    with pytest.raises(AssertionError, match="each group"):
        room_for_sums(GROUP.value * 4000, 8, 8, room)


def test_every_tile_whose_depth_is_split_has_a_counter() -> None:
    assert TILE_COUNTERS.value + PROGRAMS <= COUNTERS
