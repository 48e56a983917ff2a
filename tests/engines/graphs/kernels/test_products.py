from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfeast.engines.graphs.kernels.features import Norm, Statistics
from fedfeast.engines.graphs.kernels.products import convolve, input_gradient
from fedfeast.engines.graphs.programs import COUNTERS
from fedfeast.engines.graphs.tiles import Tiles
from fedfeast.randomness import named_generator

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LOW = torch.bfloat16 if DEVICE.type == "cuda" else torch.float16  # Triton's interpreter has no products of bfloat16
EPSILON = 1e-5
SMALL = Tiles(16, 16, 32)
SPLIT = Tiles(16, 16, 32, splits=3)
WHOLE, ROUNDED = 1e-4, 2e-2  # tolerances for float32 and low precision

few = settings(derandomize=True, deadline=None, max_examples=8)


@dataclass(frozen=True)
class Case:
    batch: int
    incoming: int
    outgoing: int
    height: int
    width: int
    kernel: int = 3
    stride: int = 1

    @property
    def shape_out(self) -> tuple[int, int, int, int]:
        height, width = (self.height - 1) // self.stride + 1, (self.width - 1) // self.stride + 1
        return self.batch, self.outgoing, height, width

    def features(self, dtype: torch.dtype = torch.float32) -> Tensor:
        return drawn("features", (self.batch, self.incoming, self.height, self.width), dtype)

    def weight(self, dtype: torch.dtype = torch.float32) -> Tensor:
        return drawn("weight", (self.outgoing, self.incoming, self.kernel, self.kernel), dtype)

    def gradient(self, dtype: torch.dtype = torch.float32) -> Tensor:
        return drawn("gradient", self.shape_out, dtype)

    def convolved(self, features: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(features, weight, stride=self.stride, padding=self.kernel // 2)


channels = st.sampled_from([1, 3, 4, 8, 12, 16, 24, 40])
sides = st.integers(1, 9)
cases = st.builds(
    Case, st.integers(2, 4), channels, channels, sides, sides, st.sampled_from([1, 3]), st.sampled_from([1, 2])
)
HARD = [
    Case(2, 1, 1, 1, 1),
    Case(2, 1, 8, 1, 1, kernel=1),
    Case(3, 40, 24, 3, 4),
    Case(2, 8, 40, 5, 6, stride=2),
    Case(2, 12, 3, 2, 3, kernel=1, stride=2),
]
hard = pytest.mark.parametrize("case", HARD, ids=str)
tilings = pytest.mark.parametrize("tiles", [SPLIT, None], ids=["split", "chosen"])


def drawn(name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.from_numpy(named_generator(0, name, *shape).normal(size=shape)).to(DEVICE, dtype)
    return values.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else values


def counters() -> Tensor:
    return torch.zeros(COUNTERS, dtype=torch.int32, device=DEVICE)


def assert_close(got: Tensor, expected: Tensor, tolerance: float = WHOLE) -> None:
    largest = float(expected.abs().max())
    torch.testing.assert_close(got.double(), expected.double(), rtol=tolerance, atol=tolerance * max(largest, 1e-3))


def check_convolve(
    case: Case, tiles: Tiles | None, dtype: torch.dtype = torch.float32, tolerance: float = WHOLE
) -> None:
    features, weight, counts = case.features(dtype), case.weight(dtype), counters()
    out, statistics = convolve(features, weight, case.stride, counts, EPSILON, tiles)
    assert out.dtype == dtype
    assert_close(out, case.convolved(features.double(), weight.double()), tolerance)
    # Statistics are those of the values as they were stored.
    stored = out.double()
    squares = stored.square().mean((0, 2, 3))
    variance = stored.var((0, 2, 3), correction=0)
    assert_close(statistics.mean, stored.mean((0, 2, 3)))
    torch.testing.assert_close(
        statistics.inverse_deviation.double() ** -2, variance + EPSILON, rtol=WHOLE, atol=1e-5 * float(squares.max())
    )
    assert not counts.any(), "counters are left as they were found"


@few
@given(cases)
def test_convolutions(case: Case) -> None:
    check_convolve(case, SMALL)


@hard
@tilings
def test_hard_convolutions(case: Case, tiles: Tiles | None) -> None:
    check_convolve(case, tiles)


@tilings
def test_convolutions_in_low_precision(tiles: Tiles | None) -> None:
    check_convolve(Case(2, 24, 16, 6, 5), tiles, LOW, ROUNDED)


def plain_input_gradient(case: Case, dtype: torch.dtype = torch.float32) -> Tensor:
    features = case.features(dtype).double().requires_grad_()
    out = case.convolved(features, case.weight(dtype).double())
    return torch.autograd.grad(out, features, case.gradient(dtype).double())[0]


def check_input_gradient(
    case: Case, tiles: Tiles | None, dtype: torch.dtype = torch.float32, tolerance: float = WHOLE
) -> None:
    features, weight, gradient, counts = case.features(dtype), case.weight(dtype), case.gradient(dtype), counters()
    expected = plain_input_gradient(case, dtype)
    got = input_gradient(gradient, weight, features, case.stride, counts, tiles=tiles)
    assert got.dtype == dtype
    assert_close(got, expected, tolerance)
    added, mask = drawn("added", features.shape, dtype), drawn("mask", features.shape, dtype)
    got = input_gradient(gradient, weight, features, case.stride, counts, added=added, tiles=tiles)
    assert_close(got, expected + added, tolerance)
    got = input_gradient(gradient, weight, features, case.stride, counts, added=added, masked_by=mask, tiles=tiles)
    assert_close(got, (expected + added) * (mask > 0), tolerance)
    assert torch.equal(got == 0, (mask <= 0) | (got == 0)), "exactly zero where it is masked"
    assert not counts.any()


@few
@given(cases)
def test_input_gradients(case: Case) -> None:
    check_input_gradient(case, SMALL)


@hard
@tilings
def test_hard_input_gradients(case: Case, tiles: Tiles | None) -> None:
    check_input_gradient(case, tiles)


@tilings
def test_input_gradients_in_low_precision(tiles: Tiles | None) -> None:
    check_input_gradient(Case(2, 24, 16, 6, 5), tiles, LOW, ROUNDED)


@dataclass(frozen=True, eq=False)
class Normalised:
    """A normalisation whose values, rectified or not, are a convolution's input or a summand of it; plain leaves."""

    norm: Norm
    scale: Tensor
    shift: Tensor
    values: Tensor

    @classmethod
    def of(cls, before: Tensor, signed: bool = False) -> "Normalised":
        scale, shift = drawn("scale", (before.shape[1],)), drawn("shift", (before.shape[1],))
        leaves = (scale.double().requires_grad_(), shift.double().requires_grad_())
        normalised = F.batch_norm(before.double(), None, None, *leaves, training=True, eps=EPSILON)
        variance, mean = torch.var_mean(before.double(), (0, 2, 3), correction=0)
        statistics = Statistics(mean.float(), (variance + EPSILON).rsqrt().float())
        stored = torch.full_like(scale, torch.nan), torch.full_like(shift, torch.nan)
        added = normalised if signed else F.relu(normalised)
        return cls(Norm(before, statistics, scale, shift, *stored), *leaves, added)


def check_input_gradient_through_a_norm(
    case: Case, tiles: Tiles | None, dtype: torch.dtype = torch.float32, tolerance: float = WHOLE
) -> None:
    one, weight, gradient = Normalised.of(case.features(dtype)), case.weight(dtype), case.gradient(dtype)
    norm, counts = one.norm, counters()
    added = drawn("added", norm.features.shape, dtype)
    out = (case.convolved(one.values, weight.double()), one.values)
    by_input, by_scale, by_shift = torch.autograd.grad(
        out, (one.values, one.scale, one.shift), (gradient.double(), added.double())
    )
    got = input_gradient(
        gradient, weight, norm.features, case.stride, counts, added=added, norm=norm, rectified_by_norm=True,
        tiles=tiles,
    )  # fmt: skip
    assert_close(got, by_input * (one.values > 0), tolerance)
    assert_close(norm.scale_gradient, by_scale, tolerance)
    assert_close(norm.shift_gradient, by_shift, tolerance)
    assert not counts.any()


def check_input_gradient_through_an_addition(
    case: Case,
    tiles: Tiles | None,
    dtype: torch.dtype = torch.float32,
    tolerance: float = WHOLE,
    signed: bool = False,
) -> None:
    # As between two blocks: the convolution's input is a rectified sum, and the norm's own rectifier comes before it.
    one, weight, gradient = Normalised.of(case.features(dtype), signed), case.weight(dtype), case.gradient(dtype)
    norm, counts = one.norm, counters()
    added, beside = drawn("added", norm.features.shape, dtype), drawn("beside", norm.features.shape, dtype)
    summed = one.values + beside.double()
    features = F.relu(summed)
    by_sum, by_scale, by_shift = torch.autograd.grad(
        (case.convolved(features, weight.double()), features),
        (summed, one.scale, one.shift),
        (gradient.double(), added.double()),
    )
    got = input_gradient(
        gradient, weight, norm.features, case.stride, counts,
        added=added, masked_by=features.detach().to(dtype), norm=norm, signed=signed, tiles=tiles,
    )  # fmt: skip
    assert_close(got, by_sum, tolerance)
    assert_close(norm.scale_gradient, by_scale, tolerance)
    assert_close(norm.shift_gradient, by_shift, tolerance)
    assert not counts.any()


@few
@given(cases)
def test_input_gradients_through_a_rectified_norm(case: Case) -> None:
    check_input_gradient_through_a_norm(case, SMALL)


@hard
@tilings
def test_hard_input_gradients_through_a_rectified_norm(case: Case, tiles: Tiles | None) -> None:
    check_input_gradient_through_a_norm(case, tiles)


def test_input_gradients_through_a_rectified_norm_in_low_precision() -> None:
    check_input_gradient_through_a_norm(Case(2, 24, 16, 6, 5), SPLIT, LOW, ROUNDED)


@few
@given(cases)
def test_input_gradients_through_an_addition(case: Case) -> None:
    check_input_gradient_through_an_addition(case, SMALL)


@hard
@tilings
def test_hard_input_gradients_through_an_addition(case: Case, tiles: Tiles | None) -> None:
    check_input_gradient_through_an_addition(case, tiles)


@pytest.mark.parametrize("signed", [False, True])
def test_input_gradients_through_an_addition_in_low_precision(signed: bool) -> None:
    check_input_gradient_through_an_addition(Case(2, 24, 16, 6, 5), SPLIT, LOW, ROUNDED, signed)


@hard
def test_hard_input_gradients_through_a_signed_addition(case: Case) -> None:
    check_input_gradient_through_an_addition(case, SMALL, signed=True)


def test_a_variance_that_rounds_below_zero_counts_as_zero() -> None:
    features = torch.ones(2, 1, 3, 3, device=DEVICE).contiguous(memory_format=torch.channels_last)
    constants = torch.linspace(300, 400, 64, device=DEVICE).view(64, 1, 1, 1)  # some of which round one way, some other
    _, statistics = convolve(features, constants, 1, counters(), EPSILON)
    torch.testing.assert_close(statistics.mean, constants.flatten(), rtol=1e-6, atol=0)
    largest = torch.tensor(EPSILON).rsqrt()
    assert (statistics.inverse_deviation <= 1.001 * largest).all(), "and none is nan"
    assert (statistics.inverse_deviation >= 0.999 * largest).any()


def test_split_products_give_the_same_bits_every_time() -> None:
    case = Case(2, 40, 16, 3, 3)
    first, second = (convolve(case.features(), case.weight(), 1, counters(), EPSILON, SPLIT) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1].mean, second[1].mean)
