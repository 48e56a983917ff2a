import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfeast.engines.graphs.tiles import (
    LARGEST,
    PROGRAMS,
    Tiles,
    ceil_div,
    power_of_two,
    product_tiles,
    tile_columns,
    vector_of,
    weight_cut,
)

modest = settings(derandomize=True, deadline=None)
pixels = st.integers(1, 2**20)
channels = st.integers(1, 1100)
taps = st.sampled_from([1, 9])


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


@given(st.integers(0, 10**9), st.integers(1, 10**6))
def test_quotients_are_rounded_up(number: int, divisor: int) -> None:
    assert (ceil_div(number, divisor) - 1) * divisor < number <= ceil_div(number, divisor) * divisor


@pytest.mark.parametrize(
    ("number", "expected"), [(1, 16), (16, 16), (17, 32), (33, 64), (64, 64), (65, 64), (1000, 64)]
)
def test_powers_of_two_within_limits(number: int, expected: int) -> None:
    assert power_of_two(number, 16, 64) == expected


@pytest.mark.parametrize(("channels", "expected"), [(1, 1), (3, 1), (8, 8), (12, 1), (40, 8)])
def test_vectors_need_rows_at_multiples_of_eight(channels: int, expected: int) -> None:
    assert vector_of(channels) == expected


def check_tiles(tiles: Tiles) -> None:
    for name in ("rows", "columns", "depth", "warps"):
        assert is_power_of_two(getattr(tiles, name)), name
    assert min(tiles.rows, tiles.columns) >= 16, "a product of matrices takes at least sixteen"
    assert tiles.rows * tiles.columns <= 64 * 32 * tiles.warps, "a thread has registers for so many products"
    assert tiles.rows * tiles.columns <= LARGEST
    assert 32 <= tiles.depth <= 64


@modest
@given(pixels, channels, channels, taps, st.sampled_from([2, 4]), st.sampled_from([LARGEST, LARGEST // 2]))
def test_tiles_of_products(
    num_pixels: int, incoming: int, outgoing: int, num_taps: int, item_bytes: int, largest: int
) -> None:
    tiles = product_tiles(num_pixels, num_taps * incoming, outgoing, item_bytes, largest)
    check_tiles(tiles)
    assert tiles.rows * tiles.columns <= min(largest, largest // 8 * tiles.warps)
    assert tiles.columns >= min(outgoing, 128), "pixels are gathered once for up to 128 channels"
    shared = tiles.stages * tiles.depth * (tiles.rows + tiles.columns) * item_bytes
    assert shared <= 96 * 1024, "what the smaller devices of compute capability 8.6 have"
    programs = ceil_div(num_pixels, tiles.rows) * ceil_div(outgoing, tiles.columns)
    assert tiles.splits in (1, 2, 4, 8)
    if tiles.splits > 1:
        assert programs < PROGRAMS, "tiles without splits would be too few"
        assert num_taps * incoming >= 512 * tiles.splits, "every program has work"


@modest
@given(pixels, channels, channels, taps, st.sampled_from([1, 2]))
def test_cuts_of_weight_gradients(num_pixels: int, incoming: int, outgoing: int, num_taps: int, stride: int) -> None:
    cut = weight_cut(num_pixels, incoming, outgoing, num_taps, stride)
    check_tiles(cut.tiles)
    assert cut.tiles.splits == 1
    assert cut.shifts_input == (stride > 1 or incoming <= outgoing)
    assert 1 <= cut.parts <= max(1, num_pixels // 512), "no part is without pixels, nor has few"
    plain, shifted = (outgoing, incoming) if cut.shifts_input else (incoming, outgoing)
    programs = ceil_div(plain, cut.tiles.rows) * ceil_div(num_taps * shifted, cut.tiles.columns)
    assert cut.parts == 1 or cut.parts * programs <= PROGRAMS


@pytest.mark.parametrize(
    ("wide", "narrow", "rows", "columns"),
    [(16, 8, 16, 128), (80, 8, 128, 128), (152, 16, 64, 256), (256, 24, 128, 128)],
)
def test_tiles_of_weight_gradients_read_little(wide: int, narrow: int, rows: int, columns: int) -> None:
    for incoming, outgoing in ((wide, narrow), (narrow, wide)):
        tiles = weight_cut(65536, incoming, outgoing, 9, 1).tiles
        assert (tiles.rows, tiles.columns) == (rows, columns)


def test_deep_products_of_few_tiles_are_split() -> None:
    assert product_tiles(1024, 9 * 1024, 64, 2).splits == 8
    assert product_tiles(65536, 9 * 1024, 64, 2).splits == 1
    assert product_tiles(1024, 9 * 64, 64, 2).splits == 1


def test_options_are_a_kernels_compile_time_arguments() -> None:
    assert Tiles(64, 32, 16, warps=8, stages=2).options() == {
        "ROWS": 64,
        "COLUMNS": 32,
        "DEPTH": 16,
        "num_warps": 8,
        "num_stages": 2,
    }


def test_wide_items_get_shallow_tiles() -> None:
    assert product_tiles(65536, 9 * 80, 8, item_bytes=2).depth == 64
    assert product_tiles(65536, 9 * 80, 8, item_bytes=4).depth == 32


def test_elementwise_tiles_fit_the_channels() -> None:
    assert [tile_columns(channels) for channels in (8, 24, 80, 208, 360, 720)] == [8, 8, 16, 32, 128, 128]
