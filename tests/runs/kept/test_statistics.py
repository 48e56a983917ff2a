from pathlib import Path

import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.runs.kept.statistics import KeptStatistics


def test_statistics_are_of_one_round(tmp_path: Path) -> None:
    kept = KeptStatistics(tmp_path / "statistics.safetensors")
    assert kept.load(3) == {}
    norm = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    kept.save(3, {"a/b": {"blocks.0/norm": norm}, "plain": {}})
    (loaded,) = kept.load(3)["a/b"].values()
    assert [part.tolist() for part in loaded] == [[1, 2], [3, 4]]
    assert kept.load(4) == {}
    kept.save(4, {})
    assert kept.load(3) == kept.load(4) == {}


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "statistics.safetensors"
    path.write_bytes(b"no tensors")
    with pytest.raises(InvalidInput, match=r"statistics\.safetensors is damaged"):
        KeptStatistics(path).load(1)
