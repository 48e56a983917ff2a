"""Convolutions in CUDA C++ against plain ones: in emulation, or on a GPU where there is one."""

from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedfeast.engines.graphs.halo import convolution
from fedfeast.engines.graphs.halo.convolution import convolve, input_gradient
from fedfeast.engines.graphs.halo.tiles import ConvolutionTiles, convolution_tiles
from fedfeast.engines.graphs.kernels.features import Features, Norm, Statistics, Then
from fedfeast.engines.graphs.programs import COUNTERS
from fedfeast.engines.graphs.tiles import ceil_div
from fedfeast.randomness import named_generator

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPSILON = 1e-5
WHOLE, ROUNDED = 1e-4, 2e-2  # tolerances for float32 and bfloat16

pytestmark = pytest.mark.usefixtures("emulated_kernels")


@dataclass(frozen=True)
class Case:
    batch: int
    side: int
    incoming: int
    outgoing: int

    def drawn(self, name: str, channels: int) -> Tensor:
        return drawn(name, (self.batch, channels, self.side, self.side))

    def features(self, made: int, signed: bool = False) -> Features:
        """Return what is convolved, made in one of the ways of convolution.cuh."""
        first, second = (self.drawn(name, self.incoming) for name in ("first", "second"))
        if made == 0:
            return Features(first)
        if made >= 4:
            return Features.norm_gradient(second, norm_of(first), rectified=made == 5)
        if made == 3:
            return Features.of_first_block(norm_of(first), norm_of(second), signed)
        return Features.of_block(norm_of(first), second, signed) if made == 2 else Features.normalised(norm_of(first))


def drawn(name: str, shape: tuple[int, ...], spread: float = 1.0) -> Tensor:
    values = torch.from_numpy(named_generator(0, name, *shape).normal(size=shape) * spread).to(DEVICE)
    if len(shape) == 4:
        return values.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
    return values.float()


def norm_of(features: Tensor) -> Norm:
    channels = features.shape[1]
    mean, shift, scale_gradient, shift_gradient = (
        drawn(name, (channels,)) for name in ("mean", "shift", "scale gradient", "shift gradient")
    )
    inverse_deviation, scale = (drawn(name, (channels,)).abs() + 0.5 for name in ("inverse deviation", "scale"))
    # A gradient's sums grow with the pixels.
    num_pixels = features.numel() / channels
    by_parameters = 0.1 * num_pixels * scale_gradient, 0.1 * num_pixels * shift_gradient
    return Norm(features, Statistics(0.3 * mean, inverse_deviation), scale, shift, *by_parameters)


def by_channel(values: Tensor) -> Tensor:
    return values[None, :, None, None]


def affine(norm: Norm) -> Tensor:
    """Return a normalisation's output, computed as kernels do: its sign decides what counts."""
    factor = norm.statistics.inverse_deviation * norm.scale
    constant = norm.shift - norm.statistics.mean * factor
    return norm.features.float() * by_channel(factor) + by_channel(constant)


def plain_features(features: Features) -> Tensor:
    """Return what features are to be, in double precision."""
    first, norm = features.first.double(), features.norm
    if norm is None:
        return first
    if features.made >= 4:
        count, statistics = first.numel() / first.shape[1], norm.statistics
        if features.made == 5:
            first = first * (affine(norm) > 0)
        normalised = (norm.features.double() - by_channel(statistics.mean)) * by_channel(statistics.inverse_deviation)
        centred = first - by_channel(norm.shift_gradient) / count - normalised * by_channel(norm.scale_gradient) / count
        return by_channel(statistics.inverse_deviation * norm.scale).double() * centred
    branch = affine(norm).double() if features.signed else affine(norm).double().relu()
    if features.made == 1:
        return branch
    if features.made == 2:
        assert features.second is not None
        return (branch + features.second.double()).relu()
    assert features.added_norm is not None
    return (branch + affine(features.added_norm).double()).relu()


def assert_close(got: Tensor, expected: Tensor, tolerance: float = WHOLE) -> None:
    largest = float(expected.abs().max())
    torch.testing.assert_close(got.double(), expected.double(), rtol=tolerance, atol=tolerance * max(largest, 1e-3))


def check_made(features: Features, made: Tensor) -> None:
    """Check what a launch says the features were, and where it left them."""
    if features.made == 0:
        assert made is features.first
    elif features.room is not None:
        assert made is features.room
    assert_close(made, plain_features(features), ROUNDED)


def check_convolution(case: Case, made: int, signed: bool = False) -> tuple[Tensor, ...]:
    features, weight = case.features(made, signed), drawn("weight", (case.outgoing, case.incoming, 3, 3), 0.1)
    counters = torch.zeros(COUNTERS, dtype=torch.int32, device=DEVICE)
    out, statistics, found = convolve(features, weight, counters, EPSILON)
    check_made(features, found)
    assert_close(out, F.conv2d(found.double(), weight.double(), padding=1), ROUNDED)
    # Statistics are those of the values as they were stored.
    stored = out.double()
    assert_close(statistics.mean, stored.mean((0, 2, 3)))
    variance = stored.var((0, 2, 3), correction=0)
    assert_close(statistics.inverse_deviation.double() ** -2, variance + EPSILON)
    assert not counters.any(), "counters are left as they were found"
    return out, statistics.mean, statistics.inverse_deviation, found


def then_of(kind: str, case: Case) -> Then:
    """Return what follows a product, by the name of where that happens."""
    added, mask, before = (case.drawn(name, case.outgoing) for name in ("added", "mask", "before"))
    return {
        "shortcut": Then(),
        "inside a block": Then(norm=norm_of(before), rectified_by_norm=True),
        "behind the stem": Then(added, norm=norm_of(before), rectified_by_norm=True),
        "between blocks": Then(added, mask, norm_of(before)),
        "between signed blocks": Then(added, mask, norm_of(before), signed=True),
    }[kind]


def check_input_gradient(case: Case, made: int, kind: str) -> tuple[Tensor, ...]:
    # On the way back, the incoming channels are those of the gradient by the output.
    gradient, weight = case.features(made), drawn("weight", (case.incoming, case.outgoing, 3, 3), 0.1)
    counters, then = torch.zeros(COUNTERS, dtype=torch.int32, device=DEVICE), then_of(kind, case)
    out, found = input_gradient(gradient, weight, counters, then)
    check_made(gradient, found)
    expected = F.conv_transpose2d(found.double(), weight.double(), padding=1)
    if then.added is not None:
        expected = expected + then.added
    if then.masked_by is not None:
        expected = expected * (then.masked_by > 0)
    if then.rectified_by_norm:
        assert then.norm is not None
        expected = expected * (affine(then.norm) > 0)
    assert_close(out, expected, ROUNDED)
    assert not out[expected == 0].any(), "exactly zero where it is masked"
    assert not counters.any()
    if then.norm is None:
        return out, found
    # Sums are those of the values as they were stored.
    norm, stored = then.norm, (out if then.signed else out * (affine(then.norm) > 0)).double()
    normalised = norm.features.double() - by_channel(norm.statistics.mean)
    normalised = normalised * by_channel(norm.statistics.inverse_deviation)
    assert_close(norm.shift_gradient, stored.sum((0, 2, 3)))
    assert_close(norm.scale_gradient, (stored * normalised).sum((0, 2, 3)))
    return out, found, norm.shift_gradient, norm.scale_gradient


# Sides, narrowing and widening, last channels that fill no tile, images that fill none.
CASES = {
    4: Case(9, 4, 104, 24),
    8: Case(3, 8, 40, 72),
    16: Case(3, 16, 24, 56),
    32: Case(2, 32, 48, 8),
    64: Case(1, 64, 8, 16),
}


@pytest.mark.parametrize(("made", "side"), [(0, 64), (0, 4), (1, 16), (2, 32), (3, 8)])
def test_convolutions(made: int, side: int) -> None:
    check_convolution(CASES[side], made)


@pytest.mark.parametrize(("made", "side"), [(2, 16), (3, 4)])
def test_convolutions_behind_signed_branches(made: int, side: int) -> None:
    check_convolution(CASES[side], made, signed=True)


@pytest.mark.parametrize(
    ("made", "kind", "side"),
    [
        (0, "shortcut", 16),
        (4, "shortcut", 8),
        (5, "shortcut", 4),
        (0, "inside a block", 4),
        (4, "inside a block", 64),
        (5, "inside a block", 32),
        (0, "behind the stem", 32),
        (4, "behind the stem", 16),
        (5, "behind the stem", 8),
        (0, "between blocks", 64),
        (4, "between blocks", 8),
        (5, "between blocks", 4),
        (4, "between signed blocks", 16),
        (4, "between signed blocks", 4),
    ],
)
def test_input_gradients(made: int, kind: str, side: int) -> None:
    check_input_gradient(CASES[side], made, kind)


@pytest.fixture
def tilings(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What is to be otherwise than chosen about tiles: chunks' octets, splits, blocks, stages, kept weights."""
    wanted: dict[str, int] = {}

    def tiles_as_wanted(*of: int) -> ConvolutionTiles:
        _, batch, incoming, *_ = of
        tiles = convolution_tiles(*of)
        chunks = ceil_div(ceil_div(incoming, 8), wanted["in_octets"])
        blocks = wanted.get("blocks", tiles.pixels.count(batch))
        return replace(
            tiles, in_octets=wanted["in_octets"], chunks=chunks, splits=wanted.get("splits", 1),
            grid=(blocks, tiles.grid[1]), stages=wanted.get("stages", 2), keeps_weights=bool(wanted.get("kept")),
        )  # fmt: skip

    monkeypatch.setattr(convolution, "convolution_tiles", tiles_as_wanted)
    return wanted


def test_blocks_that_share_a_tile_give_the_same_bits_every_time(tilings: dict[str, int]) -> None:
    case = Case(3, 8, 80, 24)
    tilings |= {"in_octets": 2, "splits": 3}  # two, two and one of five chunks
    first, second = (check_convolution(case, 1) for _ in range(2))
    assert all(map(torch.equal, first, second))
    tilings |= {"in_octets": 3, "splits": 2}  # two of four chunks each, the last of them part empty
    first, second = (check_input_gradient(case, 0, "between blocks") for _ in range(2))
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize(("stages", "kept"), [(2, True), (3, False)])
def test_a_block_computes_several_tiles(tilings: dict[str, int], stages: int, kept: bool) -> None:
    # Ten tiles, two above one another, for four blocks.
    tilings |= {"in_octets": 2, "blocks": 4, "stages": stages, "kept": kept}
    case = Case(5, 16, 24, 16)
    first, second = (check_convolution(case, 2) for _ in range(2))
    assert all(map(torch.equal, first, second))
    check_input_gradient(case, 5, "between blocks")


def test_one_stage_is_enough_for_one_turn(tilings: dict[str, int]) -> None:
    tilings |= {"in_octets": 1, "stages": 1, "kept": False}
    check_convolution(Case(1, 16, 8, 8), 0)


def leading(one: Tensor | None, rows: int) -> Tensor | None:
    return None if one is None else one[:rows].contiguous(memory_format=torch.channels_last)


def leading_norm(norm: Norm | None, rows: int) -> Norm | None:
    """Return a normalisation of the first images, with gradients of its own."""
    if norm is None:
        return None
    gradients = norm.scale_gradient.clone(), norm.shift_gradient.clone()
    return replace(
        norm, features=norm.features[:rows].contiguous(memory_format=torch.channels_last),
        scale_gradient=gradients[0], shift_gradient=gradients[1],
    )  # fmt: skip


def cut_to(one: Features, rows: int) -> Features:
    """Return features of the first images alone; the others become what nobody may read."""
    cut = Features(
        one.first[:rows].contiguous(memory_format=torch.channels_last), leading(one.second, rows),
        leading_norm(one.norm, rows), leading_norm(one.added_norm, rows), one.made, leading(one.room, rows),
    )  # fmt: skip
    for tensor in (one.first, one.second):
        if tensor is not None:
            tensor[rows:] = torch.nan
    return cut


def check_counted(case: Case, made: int, rows: int, kind: str) -> tuple[Tensor, ...]:
    """Check that launches for a whole batch of which a few images count do what launches for these do."""
    counters = torch.zeros(COUNTERS, dtype=torch.int32, device=DEVICE)
    num_images = torch.tensor([rows], dtype=torch.int32, device=DEVICE)
    features, weight = (
        case.features(made if made < 4 else 0),
        drawn("weight", (case.outgoing, case.incoming, 3, 3), 0.1),
    )
    alone, sums, found = convolve(cut_to(features, rows), weight, counters, EPSILON)
    out, statistics, made_features = convolve(features, weight, counters, EPSILON, num_images)
    assert_close(out[:rows], alone, ROUNDED)
    assert_close(made_features[:rows], found, ROUNDED)
    assert_close(statistics.mean, sums.mean, ROUNDED)
    assert_close(statistics.inverse_deviation, sums.inverse_deviation, ROUNDED)
    gradient, then = case.features(made if made >= 4 else 0), then_of(kind, case)
    assert then.norm is not None
    weight = drawn("weight", (case.incoming, case.outgoing, 3, 3), 0.1)
    own = Then(
        leading(then.added, rows), leading(then.masked_by, rows), leading_norm(then.norm, rows), then.rectified_by_norm
    )
    assert own.norm is not None
    for tensor in (then.added, then.masked_by, then.norm.features):
        if tensor is not None:
            tensor[rows:] = torch.nan
    by_input, _ = input_gradient(cut_to(gradient, rows), weight, counters, own)
    got, _ = input_gradient(gradient, weight, counters, then, num_images)
    assert_close(got[:rows], by_input, ROUNDED)
    assert_close(then.norm.shift_gradient, own.norm.shift_gradient, ROUNDED)
    assert_close(then.norm.scale_gradient, own.norm.scale_gradient, ROUNDED)
    assert not counters.any()
    return out[:rows], statistics.mean, statistics.inverse_deviation, got[:rows], then.norm.shift_gradient


@pytest.mark.parametrize(
    ("case", "rows", "made", "tiling"),
    [
        (CASES[4], 3, 1, {"in_octets": 2}),
        (Case(9, 8, 80, 24), 1, 4, {"in_octets": 2, "splits": 3}),
        (Case(5, 16, 24, 16), 1, 2, {"in_octets": 2, "blocks": 4, "kept": 1}),
        (Case(5, 16, 24, 16), 4, 5, {"in_octets": 2, "blocks": 4, "stages": 3}),
    ],
    ids=["part of a tile", "shared tiles without images", "blocks without images", "blocks with fewer tiles"],
)
def test_a_launch_serves_fewer_images(
    case: Case, rows: int, made: int, tiling: dict[str, int], tilings: dict[str, int]
) -> None:
    tilings |= tiling
    first, second = (check_counted(case, made, rows, "between blocks") for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_images_are_what_they_are_without_one_another() -> None:
    """The border of an image is zero, whatever lies beside it in memory."""
    features, weight = Case(9, 4, 24, 8).drawn("images", 24), drawn("weight", (8, 24, 3, 3))
    counters = torch.zeros(COUNTERS, dtype=torch.int32, device=DEVICE)
    out, _, _ = convolve(Features(features), weight, counters, EPSILON)
    for place in (0, 7, 8):
        alone = features[place : place + 1].contiguous(memory_format=torch.channels_last)
        assert torch.equal(convolve(Features(alone), weight, counters, EPSILON)[0][0], out[place])
