"""How the CUDA kernels cut their work: tiles of pixels, chunks of channels, and the shared memory that they take."""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from fedfeast.engines.graphs.tiles import ceil_div

CELL = 16  # bytes of eight bfloat16 values
SHARED_BYTES = 99 * 1024  # that a block may take on every device the kernels run on
SHARED_BY_THREE = 72 * 1024  # where three blocks shall share a large device's multiprocessor
REGISTERS = 65536  # of a multiprocessor
BLOCKS = 128  # of a launch, about: several passes run side by side
FEW_BLOCKS = 64  # of a launch: with fewer, several share a tile
BLOCKS_OF_A_WEIGHT = 16  # that share its gradient, about: a launch serves many weights
NUMBERS = (0, 2, 2, 4, 3, 4)  # a channel, for each way to make features
KEPT_BYTES = 40 * 1024  # of weights that a block keeps in shared memory
SIDES = (4, 8, 16, 32, 64)  # of the images that the kernels know


def knows(incoming: int, outgoing: int, kernel: int, height: int, width: int) -> bool:
    """Return whether there are kernels for a convolution of images; of one with a stride, for its gradients alone."""
    return kernel == 3 and height == width and width in SIDES and (incoming | outgoing) % 8 == 0


@dataclass(frozen=True)
class PixelTile:
    """Pixels that lie in shared memory together: whole lines of one image, or several whole images."""

    side: int  # of the image
    lines: int
    images: int = 1

    @property
    def pixels(self) -> int:
        """The number of pixels."""
        return self.images * self.lines * self.side

    @property
    def held(self) -> int:
        """The number of pixels with the border around them."""
        return self.images * (self.lines + 2) * (self.side + 2)

    def count(self, num_images: int) -> int:
        """Return how many such tiles cover a number of images."""
        return ceil_div(num_images, self.images) * (self.side // self.lines)

    def macros(self) -> dict[str, int]:
        """Return what a kernel wants to know of it."""
        return {"WIDTH": self.side, "HEIGHT": self.side, "LINES": self.lines, "GROUPS": self.images}


def pixel_tile(side: int, pixels: int) -> PixelTile:
    """Return a tile of so many pixels of images of a side."""
    if pixels > side * side:
        return PixelTile(side, side, pixels // (side * side))
    return PixelTile(side, pixels // side)


@dataclass(frozen=True)
class ConvolutionTiles:
    """How a convolution is cut: see convolution.cuh."""

    pixels: PixelTile
    warps: int
    in_octets: int
    out_octets: int
    chunks: int  # of incoming channels
    splits: int  # of the chunks of a tile among blocks
    grid: tuple[int, int]  # blocks that share the tiles, and columns of outgoing channels
    made: int = 0  # how features are made of others
    extras: int = 0  # tensors that what follows the product reads
    stages: int = 2  # of chunks under way
    keeps_weights: bool = False

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return 32 * self.warps

    @property
    def weight_cells(self) -> int:
        """The room of a chunk's weights."""
        return (9 * self.in_octets + self.in_octets % 2) * (9 * self.out_octets | 1)

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block: chunks under way, weights, products on their way out; last the sums."""
        shift = {2: 4, 4: 2}.get(self.in_octets, self.in_octets | 1)
        plane = self.pixels.held + (shift - self.pixels.held) % 8
        stage = self.in_octets * plane
        kept = 0
        if self.keeps_weights:
            kept = self.chunks * self.weight_cells
        else:
            stage += self.weight_cells
        numbers = NUMBERS[self.made] * 8 * self.in_octets * self.chunks
        row_tiles = self.pixels.pixels // (16 * self.warps)
        passed = 32 if self.out_octets == 1 and row_tiles > 1 else 16
        cells = self.stages * stage + kept + self.warps * passed * (self.out_octets | 1)
        lines = self.warps * min(passed, 32 // self.out_octets) + max(1, self.threads // (16 * self.out_octets))
        return max(cells * CELL + 4 * numbers, 4 * (lines * 16 * self.out_octets + 1))

    @property
    def workspace(self) -> int:
        """The floats that blocks which share tiles hand to one another."""
        return self.splits * self.grid[0] * self.grid[1] * self.pixels.pixels * 8 * self.out_octets

    @property
    def counters(self) -> int:
        """The counters that a launch uses."""
        return self.grid[1] + (self.grid[0] * self.grid[1] if self.splits > 1 else 0)

    def macros(self) -> dict[str, int]:
        """Return what the kernel wants to know of it."""
        row_tiles = self.pixels.pixels // (16 * self.warps)
        # A thread holds four products of a tile and an octet, and needs up to eighty registers besides.
        registers = min(128, 80 + 4 * row_tiles * self.out_octets)
        return {
            **self.pixels.macros(), "WARPS": self.warps, "ROW_TILES": row_tiles, "IN_OCTETS": self.in_octets,
            "OUT_OCTETS": self.out_octets, "CHUNKS": self.chunks, "SPLITS": self.splits, "STAGES": self.stages,
            "KEPT": int(self.keeps_weights), "MADE": self.made, "THREADS": self.threads,
            "MIN_BLOCKS": max(1, REGISTERS // (registers * self.threads)),
        }  # fmt: skip


@cache
def convolution_tiles(
    side: int, num_images: int, incoming: int, outgoing: int, made: int = 0, extras: int = 0
) -> ConvolutionTiles:
    """Return how to cut a convolution of so many images and channels."""
    # Chosen by timing what six passes side by side take on one H200, over the shapes of the paper's variants.
    all_in, all_out = ceil_div(incoming, 8), ceil_div(outgoing, 8)
    pixels, warps = 128, 4
    if incoming > outgoing:
        out_octets = least_idle(all_out, range(3, 6))
        if side >= 32 and all_out <= 2:
            pixels = 256  # a warp takes more pixels for each reading of the weights
        elif side == 16 and all_out > 2:
            pixels, warps = 256, 8
    else:
        # Four octets keep all lanes at work at the end, and are whole sectors of memory.
        out_octets = all_out if all_out <= 6 else 4
        if side >= 32 and all_out <= 2:
            pixels = 256
        elif side >= 32 and all_out > 6 and extras > 1:
            out_octets, warps = least_idle(all_out, range(6, 11)), 8
    while True:
        tile = pixel_tile(side, pixels)
        tiles = _tiles_of(tile, warps, (all_in, all_out), out_octets, num_images, made, extras)
        if tiles.shared_bytes <= SHARED_BYTES or out_octets == 1:
            return tiles
        out_octets -= 1


def _tiles_of(
    tile: PixelTile, warps: int, octets: tuple[int, int], out_octets: int, num_images: int, made: int, extras: int
) -> ConvolutionTiles:
    all_in, all_out = octets
    num_tiles, bands, columns = tile.count(num_images), tile.side // tile.lines, ceil_div(all_out, out_octets)
    # Chunks of 64 bytes begin where memory's sectors do; more outgoing channels leave room for less.
    most = 32 * warps // tile.side  # that the threads of a block cover for a line
    in_octets = all_in if all_in <= min(most, 5 if made < 2 else 3) else 4 if out_octets < 4 and made < 2 else 2
    in_octets = min(in_octets, most)
    chunks = ceil_div(all_in, in_octets)
    splits = 1
    if num_tiles * columns < FEW_BLOCKS:
        splits = max(1, min(chunks // 3, 8, 2 * FEW_BLOCKS // (num_tiles * columns)))
    splits = ceil_div(chunks, ceil_div(chunks, splits))  # none without a chunk
    blocks = num_tiles
    if splits == 1:
        turns = ceil_div(num_tiles, max(bands, BLOCKS // columns // bands * bands))
        blocks = ceil_div(ceil_div(num_tiles, turns), bands) * bands
    tiles = ConvolutionTiles(tile, warps, in_octets, out_octets, chunks, splits, (blocks, columns), made, extras)
    turns = ceil_div(chunks, splits) * ceil_div(num_tiles, blocks)
    least = 1 if chunks == 1 else min(2, turns)  # where chunks follow one another, the next shall be under way
    kept = replace(tiles, keeps_weights=True, stages=least)
    if splits == 1 and chunks * tiles.weight_cells * CELL <= KEPT_BYTES and kept.shared_bytes <= SHARED_BYTES:
        tiles = kept
    deeper = [replace(tiles, stages=stages) for stages in range(max(least, min(3, turns)), least - 1, -1)]
    return next((one for one in deeper if one.shared_bytes <= SHARED_BY_THREE), deeper[-1])


def least_idle(number: int, sizes: range) -> int:
    """Return the size of equal parts that cover a number with little left over, in few parts."""
    if number <= sizes[-1]:
        return number
    return min(reversed(sizes), key=lambda size: ceil_div(number, size) * (size + 1))


@dataclass(frozen=True)
class WeightTiles:
    """How a weight's gradient is cut: see weight_gradient.cuh."""

    pixels: PixelTile
    narrow_octets: int
    wide_tiles: int
    wide_groups: int
    units: int
    unit_groups: int
    pixel_groups: int
    chunks: int  # of pixels
    chunks_a_part: int
    stages: int = 2  # of pixels under way

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return 32 * self.wide_groups * self.unit_groups * self.pixel_groups

    @property
    def wide_channels(self) -> int:
        """The channels of the wide tensor that a block takes."""
        return 16 * self.wide_tiles * self.wide_groups

    @property
    def parts(self) -> int:
        """The partial sums that the pixels are cut into."""
        return ceil_div(self.chunks, self.chunks_a_part)

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a block: two chunks of pixels, later the sums that groups hand on."""
        stage = self.wide_channels // 8 * (self.pixels.pixels + 1) + self.narrow_octets * (self.pixels.held | 1)
        handed = self.wide_groups * self.unit_groups * self.wide_tiles * self.units * 4 * 32
        return max(self.stages * stage * CELL, 4 * handed if self.pixel_groups > 1 else 0)

    def macros(self) -> dict[str, int]:
        """Return what the kernel wants to know of it."""
        return {
            **self.pixels.macros(), "THREADS": self.threads, "MIN_BLOCKS": max(1, 384 // self.threads),
            "NARROW_OCTETS": self.narrow_octets, "WIDE_TILES": self.wide_tiles, "WIDE_GROUPS": self.wide_groups,
            "UNITS": self.units, "UNIT_GROUPS": self.unit_groups, "PIXEL_GROUPS": self.pixel_groups,
            "STAGES": self.stages,
        }  # fmt: skip


@cache
def weight_tiles(side: int, num_images: int, wide: int, narrow: int) -> WeightTiles | None:
    """Return how to cut a weight's gradient; None where no cut fits."""
    narrow_octets, pixels = ceil_div(narrow, 8), pixel_tile(side, 128)
    chunks, all_units = pixels.count(num_images), 9 * narrow_octets
    best: tuple[float, WeightTiles] | None = None
    for wide_tiles, wide_groups, unit_groups in product(range(1, 6), (1, 2, 4), range(1, 12)):
        units = ceil_div(all_units, unit_groups)
        pixel_groups = max(1, 8 // (wide_groups * unit_groups))
        warps = wide_groups * unit_groups * pixel_groups
        # Two blocks shall share a multiprocessor's registers.
        if wide_tiles * units > (12 if warps > 6 else 20) or warps < 4 or warps > 8:
            continue
        columns = ceil_div(wide, 16 * wide_tiles * wide_groups)
        parts = max(1, min(chunks, BLOCKS_OF_A_WEIGHT // columns))
        tiles = WeightTiles(
            pixels, narrow_octets, wide_tiles, wide_groups, units, unit_groups, pixel_groups,
            chunks, ceil_div(chunks, parts),
        )  # fmt: skip
        if tiles.shared_bytes > SHARED_BYTES:
            continue
        # For sixteen pixels: tensor cores take 2 cycles a product, shared memory 4 for the matrices of an operand,
        # and to copy a cell costs about an instruction slot of a warp.
        products = columns * wide_tiles * wide_groups * units * unit_groups
        matrices = columns * warps // pixel_groups * (4 * wide_tiles + 2 * units)
        copies = columns * (tiles.wide_channels // 8 + narrow_octets * pixels.held / pixels.pixels) * 4
        cost = max(2 * products, matrices) + copies
        if best is None or cost < best[0]:
            best = cost, tiles
    if best is None:
        return None
    deeper = [replace(best[1], stages=stages) for stages in (4, 3, 2)]
    return next(tiles for tiles in deeper if tiles.shared_bytes <= SHARED_BY_THREE or tiles.stages == 2)
