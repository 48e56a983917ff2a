from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfeast.engines.graphs.halo.tiles import (
    SHARED_BYTES,
    SIDES,
    ConvolutionTiles,
    PixelTile,
    convolution_tiles,
    knows,
    least_idle,
    pixel_tile,
    weight_tiles,
)
from fedfeast.engines.graphs.programs import COUNTERS
from fedfeast.engines.graphs.tiles import ceil_div

many = settings(derandomize=True, deadline=None, max_examples=1000)
sides = st.sampled_from(SIDES)
octets = st.integers(1, 90)
batches = st.integers(1, 300)
ways = st.integers(0, 5)  # to make features


def check_pixels(macros: dict[str, int]) -> int:
    """Check what both kernels ask of the pixels of a tile; return how many there are."""
    assert macros["HEIGHT"] % macros["LINES"] == 0, "a tile has whole lines"
    assert macros["GROUPS"] == 1 or macros["LINES"] == macros["HEIGHT"], "of several images, all lines"
    assert 1 <= macros["MIN_BLOCKS"] * macros["THREADS"] <= 2048
    assert macros["THREADS"] <= 1024
    return macros["GROUPS"] * macros["LINES"] * macros["WIDTH"]


def least_power(number: int) -> int:
    return 1 << (number - 1).bit_length()


@many
@given(sides, batches, octets, octets, ways)
def test_tiles_of_convolutions(side: int, batch: int, incoming: int, outgoing: int, made: int) -> None:
    tiles = convolution_tiles(side, batch, 8 * incoming, 8 * outgoing, made)
    macros = tiles.macros()
    assert macros["THREADS"] == tiles.threads == 32 * macros["WARPS"]
    assert check_pixels(macros) == tiles.pixels.pixels == 16 * macros["ROW_TILES"] * macros["WARPS"]
    # Threads cover whole lines of a chunk, or images side by side; four warps multiply together.
    beside = 16 if tiles.pixels.is_together else side
    assert tiles.threads % (least_power(tiles.in_octets) * beside) == 0
    assert tiles.warps % 4 == 0
    assert tiles.shared_bytes <= SHARED_BYTES
    assert tiles.counters <= COUNTERS
    assert tiles.counters < 1024
    # Every octet of channels has its chunk and its column, and every block a chunk.
    assert tiles.chunks == ceil_div(incoming, tiles.in_octets)
    assert tiles.grid[1] == ceil_div(outgoing, tiles.out_octets)
    chunks_a_split = ceil_div(tiles.chunks, tiles.splits)
    assert (tiles.splits - 1) * chunks_a_split < tiles.chunks
    # Every tile has its block, and no block is without one; all tiles of a block begin at the same line of an image.
    num_tiles, bands = tiles.pixels.count(batch), side // tiles.pixels.lines
    assert num_tiles * tiles.pixels.pixels >= batch * side * side
    assert tiles.grid[0] <= num_tiles
    assert tiles.grid[0] % bands == 0
    if tiles.splits > 1:
        assert tiles.grid[0] == num_tiles, "a counter belongs to one tile"
        assert not tiles.keeps_weights
    turns = chunks_a_split * ceil_div(num_tiles, tiles.grid[0])
    assert tiles.stages <= max(2, turns)
    assert tiles.stages > 1 or tiles.made or turns == 1, "what is copied does not wait for what is multiplied"


@many
@given(sides, batches, octets, octets)
def test_tiles_of_weight_gradients(side: int, batch: int, one: int, other: int) -> None:
    wide, narrow = 8 * max(one, other), 8 * min(one, other)
    tiles = weight_tiles(side, batch, wide, narrow)
    if tiles is None:
        assert narrow > 64, "what is common has tiles"
        return
    macros = tiles.macros()
    assert check_pixels(macros) % 16 == 0
    assert macros["THREADS"] == 32 * tiles.wide_groups * tiles.unit_groups * tiles.pixel_groups
    assert tiles.shared_bytes <= SHARED_BYTES
    assert tiles.stages >= 2
    # All taps of all channels have a group, all pixels a chunk, and all chunks a part; none is without one.
    assert tiles.narrow_octets * 8 == narrow
    assert tiles.units * tiles.unit_groups >= 9 * tiles.narrow_octets
    assert tiles.chunks * tiles.pixels.pixels >= batch * side * side
    assert tiles.parts * tiles.chunks_a_part >= tiles.chunks > (tiles.parts - 1) * tiles.chunks_a_part


@given(sides, st.sampled_from([64, 128, 256]))
def test_tiles_of_pixels(side: int, pixels: int) -> None:
    tile = pixel_tile(side, pixels)
    assert tile.pixels == pixels
    assert tile.held == tile.images * (tile.lines + 2) * (side + 2)
    assert tile.count(1) == max(1, side * side // pixels)


def test_what_is_made_on_the_way_takes_shared_memory() -> None:
    plain = ConvolutionTiles(PixelTile(8, 8, 2), 4, 2, 3, 4, 1, (5, 1))
    assert replace(plain, made=1).shared_bytes == plain.shared_bytes + 2 * 4 * 64
    assert replace(plain, keeps_weights=True).shared_bytes == plain.shared_bytes + 2 * 16 * plain.weight_cells
    assert replace(plain, splits=2).workspace == 2 * 5 * 128 * 24
    assert replace(plain, splits=2).counters == 6


@pytest.mark.parametrize(
    ("convolution", "known"),
    [
        ((16, 24, 3, 32, 32), True),
        ((16, 24, 3, 4, 4), True),
        ((16, 24, 1, 32, 32), False),
        ((16, 24, 3, 32, 16), False),
        ((16, 24, 3, 28, 28), False),
        ((3, 24, 3, 32, 32), False),
        ((16, 20, 3, 32, 32), False),
    ],
)
def test_which_convolutions_are_known(convolution: tuple[int, int, int, int, int], known: bool) -> None:
    assert knows(*convolution) == known


def test_parts_leave_little_idle() -> None:
    assert [least_idle(number, range(3, 6)) for number in (1, 5, 6, 8, 9, 12)] == [1, 5, 3, 4, 5, 4]
