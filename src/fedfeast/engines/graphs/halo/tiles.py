"""How the CUDA kernels cut their work: tiles of pixels, chunks of channels, and the shared memory that they take."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from fedfeast.engines.graphs.tiles import ceil_div

CELL = 16  # bytes of eight bfloat16 values
SHARED_BYTES = 99 * 1024  # that a block may take on every device the kernels run on
SHARED_BY_THREE = 72 * 1024  # where three blocks shall share a large device's multiprocessor
THREADS_TOGETHER = 512  # of a multiprocessor, so that each has 128 registers
FEW_WARPS = 512  # of a launch: with fewer, several blocks share a tile
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

    @property
    def is_together(self) -> bool:
        """Whether pixels of several images lie side by side."""
        return self.side == 4 and self.images == 16

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
        return {
            **self.pixels.macros(), "WARPS": self.warps, "ROW_TILES": row_tiles, "IN_OCTETS": self.in_octets,
            "OUT_OCTETS": self.out_octets, "CHUNKS": self.chunks, "SPLITS": self.splits, "STAGES": self.stages,
            "KEPT": int(self.keeps_weights), "MADE": self.made, "THREADS": self.threads,
            "MIN_BLOCKS": THREADS_TOGETHER // self.threads,
        }  # fmt: skip


@cache
def convolution_tiles(side: int, num_images: int, incoming: int, outgoing: int, made: int = 0) -> ConvolutionTiles:
    """Return how to cut a convolution of so many images and channels."""
    octets = ceil_div(incoming, 8), ceil_div(outgoing, 8)
    best = _narrowing_cut(side, octets[1], made) if incoming > outgoing else _widening_cut(side, octets[1])
    for cut in best.smaller():
        tiles = _tiles_of(side, num_images, octets, cut, made)
        if tiles.shared_bytes <= SHARED_BYTES:
            break
    return tiles


@dataclass(frozen=True)
class _Cut:
    """What is chosen for a convolution, by timing what six passes side by side take on one H200."""

    pixels: int
    warps: int
    in_octets: int  # at most
    out_octets: int
    blocks: int  # of a launch, about: several passes run side by side
    stages: int = 2

    def smaller(self) -> Iterator["_Cut"]:
        """Return this one and smaller ones, down to what always fits."""
        yield self
        for out_octets, in_octets in product(range(self.out_octets, 0, -1), range(self.in_octets, 0, -1)):
            yield replace(self, in_octets=in_octets, out_octets=out_octets)


def _narrowing_cut(side: int, all_out: int, made: int) -> _Cut:
    """Return the cut of a convolution from wide to narrow: all outgoing channels at once, where registers allow."""
    if side > 32:
        return _Cut(128, 4, 2, least_idle(all_out, range(3, 6)), 128)
    if side == 4 or all_out > 5 or (side == 8 and made > 3):
        # Sixteen warps have room for more channels, and for the numbers that gradients are made with.
        return _Cut(256, 16, 4 if side == 8 and made else 2, least_idle(all_out, range(5, 11)), 64, stages=1)
    if side == 32:
        return _Cut(256, 8, 4, all_out, 128, stages=1)
    return _Cut(256, 8, 2, all_out, 64)


def _widening_cut(side: int, all_out: int) -> _Cut:
    """Return the cut of a convolution from narrow to wide; memory's sectors like neighbouring channels together."""
    if side > 32:
        return _Cut(128, 4, 4, least_idle(all_out, range(3, 6)), 128)
    if side == 32:
        return _Cut(256, 8, 4, least_idle(all_out, range(6, 11)), 64)
    few = least_idle(all_out, range(4, 6))
    if side == 8:
        return _Cut(128, 8, 5, few, 64)
    return _Cut(256, 8, 3 if side == 16 else 2, few, 128)


def _tiles_of(side: int, num_images: int, octets: tuple[int, int], cut: _Cut, made: int) -> ConvolutionTiles:
    all_in, all_out = octets
    tile = pixel_tile(side, cut.pixels)
    num_tiles, bands, columns = tile.count(num_images), side // tile.lines, ceil_div(all_out, cut.out_octets)
    # The threads of a block cover whole lines of a chunk, or images side by side.
    most = 32 * cut.warps // (tile.images if tile.is_together else side)
    in_octets = min(all_in, cut.in_octets, most)
    chunks = ceil_div(all_in, in_octets)
    splits = max(1, min(chunks // 3, 8, FEW_WARPS // (cut.warps * num_tiles * columns)))
    splits = ceil_div(chunks, ceil_div(chunks, splits))  # none without a chunk
    blocks = num_tiles
    if splits == 1:
        turns = ceil_div(num_tiles, max(bands, cut.blocks // columns // bands * bands))
        blocks = ceil_div(ceil_div(num_tiles, turns), bands) * bands
    turns = ceil_div(chunks, splits) * ceil_div(num_tiles, blocks)
    stages = min(turns, cut.stages if made else 2)
    tiles = ConvolutionTiles(
        tile, cut.warps, in_octets, cut.out_octets, chunks, splits, (blocks, columns), made, stages
    )
    keeps = splits == 1 and chunks * tiles.weight_cells * CELL <= KEPT_BYTES
    return replace(tiles, keeps_weights=keeps)


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
