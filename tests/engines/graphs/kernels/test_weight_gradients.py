import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedfeast.engines.graphs.kernels.weight_gradients import weight_gradient
from fedfeast.engines.graphs.tiles import Cut, Tiles, weight_cut
from fedfeast.randomness import named_generator

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LOW = torch.bfloat16 if DEVICE.type == "cuda" else torch.float16  # Triton's interpreter has no products of bfloat16
SMALL = Tiles(16, 16, 32, stages=1)

few = settings(derandomize=True, deadline=None, max_examples=12)
channels = st.sampled_from([1, 3, 4, 8, 12, 16, 24, 40])
sides = st.integers(1, 9)
shapes = st.tuples(st.integers(2, 4), channels, sides, sides)
Shape = tuple[int, int, int, int]


def drawn(name: str, shape: Shape, dtype: torch.dtype) -> Tensor:
    values = torch.from_numpy(named_generator(0, name, *shape).normal(size=shape)).to(DEVICE, dtype)
    return values.contiguous(memory_format=torch.channels_last)


def check(
    shape: Shape,
    outgoing: int,
    kernel: int,
    stride: int,
    cut: Cut,
    dtype: torch.dtype = torch.float32,
) -> None:
    batch, incoming, height, width = shape
    features = drawn("features", shape, dtype)
    gradient = drawn("gradient", (batch, outgoing, (height - 1) // stride + 1, (width - 1) // stride + 1), dtype)
    partials = torch.full((cut.parts, outgoing, kernel, kernel, incoming), torch.nan, device=DEVICE)
    weight_gradient(features, gradient, stride, kernel, partials, cut)
    weight = torch.zeros(outgoing, incoming, kernel, kernel, dtype=torch.float64, device=DEVICE, requires_grad=True)
    out = F.conv2d(features.double(), weight, stride=stride, padding=kernel // 2)
    (expected,) = torch.autograd.grad(out, weight, gradient.double())
    got = partials.double().sum(0).permute(0, 3, 1, 2)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


@few
@given(shapes, channels, st.sampled_from([1, 3]), st.sampled_from([1, 2]), st.integers(1, 4), st.booleans())
def test_partial_sums_add_up_to_the_gradient(
    shape: Shape, outgoing: int, kernel: int, stride: int, parts: int, shifts_input: bool
) -> None:
    check(shape, outgoing, kernel, stride, Cut(SMALL, parts, shifts_input or stride > 1))


@pytest.mark.parametrize("shifts_input", [True, False])
@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize(
    ("shape", "outgoing", "kernel"), [((2, 1, 1, 1), 1, 3), ((2, 1, 3, 1), 8, 3), ((3, 24, 3, 4), 12, 1)], ids=str
)
def test_hard_cases(shape: Shape, outgoing: int, kernel: int, parts: int, shifts_input: bool) -> None:
    check(shape, outgoing, kernel, 1, Cut(SMALL, parts, shifts_input))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("parts", [5, 40])
def test_more_parts_than_pixels_leave_zeros(stride: int, parts: int) -> None:
    check((2, 8, 2, 2), 16, 3, stride, Cut(SMALL, parts, shifts_input=True))


@pytest.mark.parametrize(("incoming", "outgoing", "stride"), [(8, 24, 1), (24, 8, 1), (24, 8, 2)])
def test_the_cuts_that_are_chosen(incoming: int, outgoing: int, stride: int) -> None:
    cut = weight_cut(4 * -((-9 // stride) ** 2), incoming, outgoing, 9, stride)
    assert cut.shifts_input == (incoming < outgoing or stride > 1)
    check((4, incoming, 9, 9), outgoing, 3, stride, cut)


@pytest.mark.parametrize("shifts_input", [True, False])
def test_low_precision_is_summed_whole(shifts_input: bool) -> None:
    check((2, 16, 5, 5), 24, 3, 1, Cut(SMALL, 2, shifts_input), LOW)


def test_a_strided_gradient_cannot_be_shifted() -> None:
    with pytest.raises(AssertionError):
        check((2, 8, 4, 4), 8, 3, 2, Cut(SMALL, 1, shifts_input=False))
