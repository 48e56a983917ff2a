"""How matrix products are cut into tiles."""

from dataclasses import dataclass
from typing import Any

PROGRAMS = 64  # that are enough for one kernel: many lanes run side by side
WIDTHS = (16, 32, 64, 128, 256)  # of tiles
LARGEST = 128 * 128  # tile whose products eight warps can hold
PRODUCTS_A_READ = 64  # multiplications in the time that an H200 takes to read one item from its second-level cache


@dataclass(frozen=True)
class Tiles:
    """Rows, columns and depth of a tile, the warps that share it, the loads kept in flight."""

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 3
    splits: int = 1  # programs that share the depth of a tile

    def options(self) -> dict[str, Any]:
        """Return a kernel's compile-time arguments."""
        return {
            "ROWS": self.rows,
            "COLUMNS": self.columns,
            "DEPTH": self.depth,
            "num_warps": self.warps,
            "num_stages": self.stages,
        }


@dataclass(frozen=True)
class Cut:
    """How a weight's gradient is summed: over several parts of the pixels, each a partial sum of its own."""

    tiles: Tiles
    parts: int
    shifts_input: bool  # else the gradient is shifted, where it has fewer channels


def ceil_div(number: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-number // divisor)


def power_of_two(number: int, least: int, most: int) -> int:
    """Return the least power of two that is not below the number, within limits."""
    return max(least, min(most, 1 << (number - 1).bit_length()))


def tile_columns(channels: int) -> int:
    """Return the widest tile of an elementwise kernel that leaves hardly more of its last column idle than others."""
    widths = (128, 64, 32, 16, 8)
    covered = {width: ceil_div(channels, width) * width for width in widths}
    return next(width for width in widths if covered[width] <= 1.1 * min(covered.values()))


def vector_of(channels: int) -> int:
    """Return how many neighbouring channels one load may take: eight where rows begin at multiples of eight."""
    return 8 if channels % 8 == 0 else 1


def product_tiles(num_pixels: int, depth: int, outgoing: int, item_bytes: int, largest: int = LARGEST) -> Tiles:
    """Return the tiles of a product (pixels, depth) x (depth, outgoing) of items of so many bytes."""
    # Each column of tiles gathers all pixels once for every tap, each row of tiles reads all weights: what is read
    # twice costs more time than idle columns do.
    columns = power_of_two(outgoing, 16, 128)
    rows = min(128, largest // columns)
    programs, splits = ceil_div(num_pixels, rows) * ceil_div(outgoing, columns), 1
    while splits < 8 and programs * splits < PROGRAMS and depth // (2 * splits) >= 512:
        splits *= 2
    # Wider items in deeper tiles, or deeper tiles of many items, would not fit the shared memory of smaller devices.
    depth_at_once = 32 if depth <= 96 or item_bytes > 2 or rows * columns > 8192 else 64
    return Tiles(rows, columns, depth_at_once, warps=8 if 2 * rows * columns > largest else 4, splits=splits)


def weight_cut(num_pixels: int, incoming: int, outgoing: int, taps: int, stride: int) -> Cut:
    """Return how to cut the gradient of a weight, given the pixels of the output."""
    shifts_input = stride > 1 or incoming <= outgoing
    plain, shifted = (outgoing, incoming) if shifts_input else (incoming, outgoing)
    shifted *= taps
    rows, columns = min(
        ((rows, columns) for rows in WIDTHS for columns in WIDTHS if rows * columns <= LARGEST),
        key=lambda tile: (_time_a_pixel(plain, shifted, *tile), tile),
    )
    is_large = 2 * rows * columns > LARGEST or columns > 128  # also the loads for so many columns take registers
    tiles = Tiles(rows, columns, 64, warps=8 if is_large else 4, stages=1)
    programs = ceil_div(plain, rows) * ceil_div(shifted, columns)
    parts = max(1, min(PROGRAMS // programs, num_pixels // 512))
    return Cut(tiles, parts, shifts_input)


def _time_a_pixel(plain: int, shifted: int, rows: int, columns: int) -> float:
    """Return the time that a weight's gradient takes for a pixel, in reads of one item."""
    row_tiles, column_tiles = ceil_div(plain, rows), ceil_div(shifted, columns)
    return plain * column_tiles + shifted * row_tiles + row_tiles * rows * column_tiles * columns / PRODUCTS_A_READ
