import json
from pathlib import Path

import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.serving.bundle import read_manifest, write_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    write_bundle(folder, {"head.bias": torch.zeros(3)}, {"macs": 5})
    return folder


def test_the_manifest_vouches_for_every_file(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    assert manifest["macs"] == 5
    assert manifest["bytes"] == (bundle / "weights.safetensors").stat().st_size
    assert set(manifest["sha256"]) == {file.name for file in bundle.iterdir()} - {"manifest.json"}


@pytest.mark.parametrize("name", ["weights.safetensors", "model.py"])
def test_a_changed_file_is_refused(bundle: Path, name: str) -> None:
    (bundle / name).write_bytes((bundle / name).read_bytes() + b" ")
    with pytest.raises(InvalidInput, match=f"{name} does not match its hash"):
        read_manifest(bundle)


def test_a_damaged_manifest_is_refused(bundle: Path) -> None:
    (bundle / "manifest.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"manifest.json is damaged"):
        read_manifest(bundle)
    (bundle / "manifest.json").write_text(json.dumps({"macs": 5}))
    with pytest.raises(InvalidInput, match=r"manifest.json is damaged"):
        read_manifest(bundle)


def test_no_bundle_and_no_overwriting(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is no bundle"):
        read_manifest(tmp_path)
    with pytest.raises(InvalidInput, match="not an empty folder"):
        write_bundle(bundle, {}, {})
