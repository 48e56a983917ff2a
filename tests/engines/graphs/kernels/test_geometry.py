"""Shapes that kernels walk over, and what they leave beside them."""

import pytest
import torch
import torch.nn.functional as F

from fedfeast.engines.graphs.kernels.features import empty_features, precision_of
from fedfeast.engines.graphs.kernels.geometry import geometry_of


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 4), (5, 3), (6, 8), (9, 9)])
def test_every_tap_lies_where_unfold_finds_it(height: int, width: int, kernel: int, stride: int) -> None:
    batch = 3
    geometry = geometry_of(batch, height, width, stride, kernel, torch.device("cpu"))
    numbers = torch.arange(1, batch * height * width + 1, dtype=torch.float64).view(batch, 1, height, width)
    under = F.unfold(numbers, kernel, padding=kernel // 2, stride=stride)  # (batch, taps, pixels), zero outside
    under = under.permute(0, 2, 1).reshape(-1, kernel * kernel).long()
    assert geometry.origin.dtype == geometry.inside.dtype == torch.int32
    assert geometry.origin.shape == geometry.inside.shape == (len(under),)
    for tap in range(kernel * kernel):
        is_inside = (geometry.inside >> tap) & 1 == 1
        assert torch.equal(is_inside, under[:, tap] > 0)
        place = geometry.origin + (tap // kernel) * width + tap % kernel
        assert torch.equal(place[is_inside].long(), under[is_inside, tap] - 1)
    assert not (geometry.inside >> kernel * kernel).any(), "no bit beyond the last tap"


def test_tables_are_made_once() -> None:
    cpu = torch.device("cpu")
    assert geometry_of(2, 4, 4, 1, 3, cpu) is geometry_of(2, 4, 4, 1, 3, cpu)
    assert geometry_of(2, 4, 4, 1, 3, cpu) is not geometry_of(2, 4, 4, 2, 3, cpu)


def test_features_are_channels_last_and_of_the_same_kind() -> None:
    features = empty_features((2, 3, 4, 5), torch.zeros(1, dtype=torch.bfloat16))
    assert features.shape == (2, 3, 4, 5)
    assert features.dtype == torch.bfloat16
    assert features.is_contiguous(memory_format=torch.channels_last)


def test_float32_is_multiplied_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert precision_of(torch.empty(1)) == "ieee"
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert precision_of(torch.empty(1)) == "tf32"
    assert precision_of(torch.empty(1, dtype=torch.bfloat16)) == "ieee"
