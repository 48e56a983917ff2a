"""How matrix products are cut into tiles."""

from dataclasses import dataclass
from typing import Any


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


def product_tiles(num_pixels: int, depth: int, outgoing: int, item_bytes: int) -> Tiles:
    """Return the tiles of a product (pixels, depth) x (depth, outgoing) of items of so many bytes."""
    # Chosen on one H200 over the shapes of the paper's variants.
    rows = 128 if num_pixels >= 16384 else 64
    columns = power_of_two(outgoing, 16, 64)
    if columns == 64 and ceil_div(outgoing, 32) * 32 <= 0.8 * ceil_div(outgoing, 64) * 64:
        columns = 32  # the last tile would be mostly idle
    programs = ceil_div(num_pixels, rows) * ceil_div(outgoing, columns)
    splits = 1
    while splits < 4 and programs <= 128 and depth // (2 * splits) >= 1024:
        splits *= 2
    # Wider items in deeper tiles would not fit the shared memory of smaller devices.
    return Tiles(rows, columns, 32 if depth <= 96 or item_bytes > 2 else 64, splits=splits)


def weight_cut(num_pixels: int, incoming: int, outgoing: int, taps: int, stride: int) -> Cut:
    """Return how to cut the gradient of a weight, given the pixels of the output."""
    shifts_input = stride > 1 or incoming <= outgoing
    plain, shifted = (outgoing, incoming) if shifts_input else (incoming, outgoing)
    rows = power_of_two(plain, 16, 128 if 64 < plain <= 256 else 64)
    columns = 128 if num_pixels >= 16384 and incoming <= outgoing else 64
    tiles = Tiles(rows, columns, 64, stages=1)
    programs = ceil_div(plain, rows) * ceil_div(taps * shifted, tiles.columns)
    parts = max(1, min(264 // programs, num_pixels // tiles.depth))
    return Cut(tiles, parts, shifts_input)
