import pytest
import torch

from fedfeast.engines.graphs.kernels.features import empty_features, precision_of


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
