"""Changes on disk: what comes back, and that nothing stays behind."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from fedfeast.federation.aggregation import disk_buffer
from fedfeast.federation.aggregation.disk_buffer import DiskBuffer
from fedfeast.networks import Layout
from fedfeast.routing import ChosenSlices, LeadingSlices, MaskedPositions

LAYOUT = Layout.of({"w": (6, 4), "b": (5,)}, alignment=8)
MASK = torch.arange(LAYOUT.size) % 3 == 0


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def rows_of(kept: DiskBuffer) -> torch.Tensor:
    return torch.cat([rows for _, rows in kept.blocks()], dim=1)


@pytest.mark.parametrize("block", [8, 16, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_kind_of_slice_comes_back(block: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_buffer, "LEAST_BLOCK", block)
    monkeypatch.setattr(disk_buffer, "BLOCK_BYTES", 1)
    maps = [
        LeadingSlices.of(LAYOUT, {"w": (2, 3)}),
        ChosenSlices.of(LAYOUT, {"w": (torch.tensor([1, 4]), torch.tensor([0, 3])), "b": (torch.tensor([2]),)}),
        MaskedPositions.of(LAYOUT, MASK),
        LeadingSlices.of(LAYOUT, LAYOUT.shapes),
    ]
    expected = torch.full((len(maps), LAYOUT.size), torch.nan, dtype=dtype)
    with DiskBuffer(LAYOUT.size, len(maps), dtype) as kept:
        for row, slice_map in enumerate(maps):
            local = torch.arange(slice_map.layout.size, dtype=dtype) + 0.25
            slice_map.scatter_(expected[row], local)
            kept.add(slice_map, local)
        assert len(kept) == 4
        got = rows_of(kept)
    assert got.dtype == dtype
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.nan_to_num(-1.0), expected.nan_to_num(-1.0))


def test_where_a_client_does_not_count_it_has_no_say() -> None:
    slice_map = LeadingSlices.of(LAYOUT, {"b": (3,)})
    with DiskBuffer(LAYOUT.size, 1, torch.float32) as kept:
        kept.add(slice_map, torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True]))
        (row,) = rows_of(kept)
    assert row[~row.isnan()].tolist() == [1.0, 3.0]


def test_nothing_is_ever_to_be_seen_and_the_space_is_given_back(own_folder: Path) -> None:
    with DiskBuffer(LAYOUT.size, 1, torch.float32) as kept:
        kept.add(LeadingSlices.of(LAYOUT, LAYOUT.shapes), torch.ones(29))
        assert list(own_folder.iterdir()) == []
    with pytest.raises(ValueError, match="closed"):
        next(kept.blocks())


def test_an_error_gives_the_space_back(own_folder: Path) -> None:
    with pytest.raises(RuntimeError), DiskBuffer(LAYOUT.size, 1, torch.float32) as kept:
        kept.add(LeadingSlices.of(LAYOUT, LAYOUT.shapes), torch.ones(3))  # too short
    with pytest.raises(ValueError, match="closed"):
        next(kept.blocks())
    assert list(own_folder.iterdir()) == []


def test_kill_9_leaves_nothing_behind(own_folder: Path) -> None:
    script = """
import sys, torch
from fedfeast.federation.aggregation.disk_buffer import DiskBuffer
from fedfeast.networks import Layout
from fedfeast.routing import LeadingSlices
layout = Layout.of({"w": (1000, 1000)})
kept = DiskBuffer(layout.size, 1, torch.float32)
kept.add(LeadingSlices.of(layout, layout.shapes), torch.ones(layout.size))
print("written", flush=True)
sys.stdin.read()
"""
    environment = {**os.environ, "TMPDIR": str(own_folder)}
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert list(own_folder.iterdir()) == []
