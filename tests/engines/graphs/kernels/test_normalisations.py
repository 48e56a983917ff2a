from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfeast.engines.graphs.kernels.features import Norm, Statistics
from fedfeast.engines.graphs.kernels.normalisations import (
    PROGRAMS,
    SIZE,
    norm_gradient,
    normalise,
    pool,
    pool_gradient,
    rectify_gradient,
    row_programs,
    sum_gradients,
)
from fedfeast.engines.graphs.programs import COUNTERS
from fedfeast.randomness import named_generator

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPSILON = 1e-5
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}

few = settings(derandomize=True, deadline=None, max_examples=10)
sides = st.integers(1, 9)
shapes = st.tuples(st.integers(2, 4), st.sampled_from([1, 3, 4, 8, 12, 16, 24, 40]), sides, sides)
hard = pytest.mark.parametrize("shape", [(2, 1, 1, 1), (3, 8, 1, 1), (2, 24, 7, 5), (2, 136, 3, 3)], ids=str)
precisions = pytest.mark.parametrize("dtype", list(TOLERANCE))
Shape = tuple[int, ...]


def drawn(name: str, shape: Shape, dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.from_numpy(named_generator(0, name, *shape).normal(size=shape)).to(DEVICE, dtype)
    return values.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else values


def norm_of(name: str, shape: Shape, dtype: torch.dtype) -> Norm:
    features, channels = drawn(name, shape, dtype), shape[1]
    variance, mean = torch.var_mean(features.double(), (0, 2, 3), correction=0)
    statistics = Statistics(mean.float(), (variance + EPSILON).rsqrt().float())
    scale, shift = drawn(f"{name} scale", (channels,)), drawn(f"{name} shift", (channels,))
    return Norm(
        features, statistics, scale, shift, torch.full_like(scale, torch.nan), torch.full_like(scale, torch.nan)
    )


@dataclass(frozen=True, eq=False)
class Plain:
    """The same in double precision, for autograd."""

    features: Tensor
    scale: Tensor
    shift: Tensor

    @classmethod
    def of(cls, norm: Norm) -> "Plain":
        return cls(*(one.double().requires_grad_() for one in (norm.features, norm.scale, norm.shift)))

    @property
    def normalised(self) -> Tensor:
        return F.batch_norm(self.features, None, None, self.scale, self.shift, training=True, eps=EPSILON)

    def gradients(self, out: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(out, (self.features, self.scale, self.shift), gradient.double())


def assert_close(got: Tensor, expected: Tensor, tolerance: float, unit: float | None = None) -> None:
    expected = expected.detach().double()
    unit = max(float(expected.abs().max()), 1e-3) if unit is None else unit
    torch.testing.assert_close(got.double(), expected, rtol=tolerance, atol=tolerance * unit)


def check_normalise(shape: Shape, dtype: torch.dtype = torch.float32) -> None:
    norm, other, added = norm_of("one", shape, dtype), norm_of("other", shape, dtype), drawn("added", shape, dtype)
    plain, rectified = Plain.of(norm), F.relu(Plain.of(norm).normalised)
    assert normalise(norm).dtype == dtype
    assert_close(normalise(norm), F.relu(plain.normalised), TOLERANCE[dtype])
    assert_close(normalise(norm, added=added), F.relu(rectified + added), TOLERANCE[dtype])
    expected = F.relu(rectified + Plain.of(other).normalised)
    assert_close(normalise(norm, added_norm=other), expected, TOLERANCE[dtype])
    assert_close(normalise(norm, added, signed=True), F.relu(plain.normalised + added), TOLERANCE[dtype])
    expected = F.relu(plain.normalised + Plain.of(other).normalised)
    assert_close(normalise(norm, added_norm=other, signed=True), expected, TOLERANCE[dtype])


@few
@given(shapes)
def test_normalising(shape: Shape) -> None:
    check_normalise(shape)


@hard
@precisions
def test_normalising_hard_cases(shape: Shape, dtype: torch.dtype) -> None:
    check_normalise(shape, dtype)


def check_gradients(norm: Norm, plain: Plain, plain_out: Tensor, out: Tensor | None, signed: bool = False) -> None:
    """Compare with autograd; ``out`` is a block's rectified output of which the norm, rectified or signed, is part."""
    dtype, counters = norm.features.dtype, torch.zeros(COUNTERS, dtype=torch.int32, device=DEVICE)
    gradient = drawn("gradient", tuple(plain_out.shape), dtype)
    by_features, by_scale, by_shift = plain.gradients(plain_out, gradient)
    if out is None:
        sum_gradients(gradient, norm, counters)
        masked = gradient
    else:
        masked = rectify_gradient(gradient, out, norm, counters, signed=signed)
        assert torch.equal(masked, torch.where(out > 0, gradient, 0))
    got = norm_gradient(masked, norm, rectified=out is not None and not signed)
    assert not counters.any()
    assert got.dtype == dtype
    assert_close(norm.scale_gradient, by_scale, TOLERANCE[dtype], unit=float(gradient.abs().sum((0, 2, 3)).max()))
    assert_close(norm.shift_gradient, by_shift, TOLERANCE[dtype], unit=float(gradient.abs().sum((0, 2, 3)).max()))
    # With few pixels a channel's gradient nearly cancels: errors are measured by what cancels.
    unit = float((norm.scale.abs() * norm.statistics.inverse_deviation).max() * gradient.abs().max())
    assert_close(got, by_features, TOLERANCE[dtype], unit)


def check_all_gradients(shape: Shape, dtype: torch.dtype = torch.float32) -> None:
    norm, added = norm_of("one", shape, dtype), drawn("added", shape, dtype)
    plain = Plain.of(norm)
    check_gradients(norm, plain, plain.normalised, out=None)
    plain_out = F.relu(F.relu(plain.normalised) + added.double())
    check_gradients(norm, plain, plain_out, plain_out.detach().to(dtype))
    plain_out = F.relu(plain.normalised + added.double())
    check_gradients(norm, plain, plain_out, plain_out.detach().to(dtype), signed=True)


@few
@given(shapes)
def test_gradients(shape: Shape) -> None:
    check_all_gradients(shape)


@hard
@precisions
def test_gradients_of_hard_cases(shape: Shape, dtype: torch.dtype) -> None:
    check_all_gradients(shape, dtype)


def test_gradients_summed_by_several_programs() -> None:
    shape = (2, 128, 5, 7)  # seventy pixels, sixteen for a program
    norm = norm_of("one", shape, torch.float32)
    plain = Plain.of(norm)
    check_gradients(norm, plain, plain.normalised, out=None)


@pytest.mark.parametrize("channels", [1, 3, 8, 12, 24, 80, 208, 360, 720, 1023, 1100])
@pytest.mark.parametrize("pixels", [1, 1000, 4096, 65536, 262144])
def test_programs_meet_the_same_channels_in_every_turn(channels: int, pixels: int) -> None:
    programs, blocks = row_programs(pixels * channels, channels), -(-pixels * channels // SIZE)
    assert 1 <= programs <= min(blocks, max(PROGRAMS, channels))
    if programs < blocks:
        assert programs * SIZE % channels == 0
        assert programs > PROGRAMS // 3, "enough for the whole device"


@pytest.mark.parametrize("channels", [8, 12, 24])
def test_rows_of_several_turns(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfeast.engines.graphs.kernels.normalisations.PROGRAMS", 3)
    shape = (3, channels, 21, 20)
    assert row_programs(3 * 420 * channels, channels) == 3
    check_normalise(shape)
    check_all_gradients(shape)


def check_pool(shape: Shape, stride: int, dtype: torch.dtype = torch.float32) -> None:
    features = drawn("features", shape, dtype)
    leaf = features.double().requires_grad_()
    plain = F.avg_pool2d(leaf, stride, ceil_mode=True)
    pooled = pool(features, stride)
    assert pooled.dtype == dtype
    assert_close(pooled, plain, TOLERANCE[dtype])
    gradient = drawn("gradient", tuple(plain.shape), dtype)
    (expected,) = torch.autograd.grad(plain, leaf, gradient.double())
    assert_close(pool_gradient(gradient, features, stride), expected, TOLERANCE[dtype])


@few
@given(shapes, st.integers(1, 3))
def test_pooling(shape: Shape, stride: int) -> None:
    check_pool(shape, stride)


@precisions
@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("shape", [(2, 1, 1, 1), (2, 8, 7, 5), (3, 40, 3, 9)], ids=str)
def test_pooling_over_the_edge(shape: Shape, stride: int, dtype: torch.dtype) -> None:
    check_pool(shape, stride, dtype)
