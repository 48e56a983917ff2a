import pytest
import torch

from fedfeast.engines.graphs.kernels.reductions import COLUMNS, ROWS, empty_partials, finish_statistics, finish_sums
from fedfeast.randomness import named_generator

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPSILON = 1e-5

sizes = pytest.mark.parametrize("rows", [1, 5, ROWS, 2 * ROWS + 3])
widths = pytest.mark.parametrize("channels", [1, COLUMNS, 3 * COLUMNS - 1])


def drawn(*shape: int) -> torch.Tensor:
    return torch.from_numpy(named_generator(0, *shape).normal(size=shape)).float().to(DEVICE)


@sizes
@widths
def test_sums_over_all_rows(rows: int, channels: int) -> None:
    partials, room = drawn(2, rows, channels), torch.full((2, channels + 1), torch.nan, device=DEVICE)
    finish_sums(partials, room[0, :-1], room[1, :-1])
    torch.testing.assert_close(room[:, :-1].double(), partials.double().sum(1), rtol=1e-4, atol=1e-4)
    assert room[:, -1].isnan().all(), "nothing is written beyond the last channel"


@sizes
@widths
def test_statistics_of_sums(rows: int, channels: int) -> None:
    values = drawn(rows, 7, channels).double() + 0.5
    partials = torch.stack((values.sum(1), values.square().sum(1))).float()
    mean, inverse_deviation = finish_statistics(partials, rows * 7, EPSILON)
    variance, expected = torch.var_mean(values.flatten(0, 1), 0, correction=0)
    torch.testing.assert_close(mean.double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(inverse_deviation.double(), (variance + EPSILON).rsqrt(), rtol=1e-4, atol=0)


def test_a_variance_that_rounds_below_zero_counts_as_zero() -> None:
    partials = torch.tensor([[[300.0]], [[29999.99]]], device=DEVICE)  # three values of a hundred
    mean, inverse_deviation = finish_statistics(partials, 3, EPSILON)
    assert float(mean) == 100
    assert float(inverse_deviation) == pytest.approx(EPSILON**-0.5, rel=1e-5)


def test_room_for_partial_sums() -> None:
    partials = empty_partials(3, 5, torch.empty(1, dtype=torch.bfloat16, device=DEVICE))
    assert partials.shape == (2, 3, 5)
    assert (partials.dtype, partials.device.type) == (torch.float32, DEVICE.type)
