import json
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.serving.choice import Limits
from fedfeast.serving.exporting import ExportOptions, export
from fedfeast.serving.ladder import Ladder, export_ladder
from fedfeast.serving.manifest import write_manifest
from fedfeast.serving.verification import verify

LIMITS = Limits(max_macs=200e3)


def reseal(bundle: Path, **changes: Any) -> None:
    """Write the manifest again with new hashes, as a careful forger would."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    files = list(manifest.pop("sha256"))
    write_manifest(bundle / "manifest.json", {**manifest, **changes}, files)


def test_a_sound_bundle(bundle: Path) -> None:
    (bundle / "notes.txt").write_text("mine")
    (result,) = verify(bundle)
    assert (result["files"], result["samples"], result["unlisted"]) == (6, 16, ["notes.txt"])
    assert list(result["largest_differences"]) == ["torch"]
    assert result["largest_differences"]["torch"] < 1e-5


@pytest.mark.parametrize("takes_pixels", [True, False])
def test_a_bundle_with_onnx_runs_that_too(
    run: fedfeast.Run, tmp_path: Path, takes_pixels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(run, tmp_path / "bundle", LIMITS, ExportOptions(takes_pixels=takes_pixels))
    (result,) = verify(tmp_path / "bundle")
    assert 0 <= result["largest_differences"]["model.onnx"] < 1e-4
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (without,) = verify(tmp_path / "bundle")
    assert without["largest_differences"]["model.onnx"] is None


def test_other_predictions_are_refused_even_with_the_right_hashes(bundle: Path) -> None:
    weights = load_file(bundle / "weights.safetensors")
    save_file({**weights, "head.bias": weights["head.bias"] + 0.01}, bundle / "weights.safetensors")
    with pytest.raises(InvalidInput, match=r"weights.safetensors does not match its hash"):
        verify(bundle)
    reseal(bundle)
    with pytest.raises(InvalidInput, match=r"predicts its samples otherwise .*differ by 1.0e-02"):
        verify(bundle)


def test_a_ladder_is_verified_rung_by_rung(run: fedfeast.Run, tmp_path: Path) -> None:
    export_ladder(run, tmp_path / "models", 2)
    results = verify(tmp_path / "models")
    assert [result["macs"] for result in results] == [128_320, 4_974_848]
    assert verify(tmp_path / "models" / "ladder.json") == results
    assert verify(tmp_path / "models" / "02-4.975M" / "manifest.json") == results[1:]
    (tmp_path / "models" / "02-4.975M" / "model.onnx").unlink()
    with pytest.raises(InvalidInput, match=r"model.onnx is missing"):
        verify(tmp_path / "models")


def test_a_file_is_verified_by_the_manifest_beside_it(run: fedfeast.Run, tmp_path: Path) -> None:
    export(run, tmp_path / "model.onnx", LIMITS)
    for name in ("model.onnx", "model.onnx.json"):
        (result,) = verify(tmp_path / name)
        assert result["macs"] == 128_320
    content = bytearray((tmp_path / "model.onnx").read_bytes())
    content[-1] ^= 1
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"model.onnx does not match its hash"):
        verify(tmp_path / "model.onnx")
    (tmp_path / "model.onnx.json").unlink()
    with pytest.raises(InvalidInput, match=r"has no manifest model.onnx.json beside it"):
        verify(tmp_path / "model.onnx")


def test_what_is_no_bundle_is_said(tmp_path: Path, run: fedfeast.Run) -> None:
    with pytest.raises(InvalidInput, match="is no bundle"):
        verify(tmp_path)
    with pytest.raises(InvalidInput, match="is no bundle"):
        verify(run.folder.path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"macs": float("nan")}, "states macs that no network has"),
        ({"macs": {"a": 1}}, "states macs that no network has"),
        ({"parameters": -5}, "states parameters that no network has"),
        ({"bytes": 10**300}, "states bytes that no network has"),
        ({"test_accuracy": "\x1b[31mred"}, "states test_accuracy that no network has"),
        ({"validation_accuracy": 1.5}, "states validation_accuracy that no network has"),
        ({"test_figures": [1]}, "states test_figures that no network has"),
        ({"name": "a\nb"}, "states name that no network has"),
        ({"class_names": "x"}, "states class_names that no network has"),
        ({"class_names": ["a"]}, "has 1 names for 10 outputs"),
    ],
)
def test_facts_that_cannot_be_are_vouched_for_by_nobody(
    bundle: Path, run: fedfeast.Run, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    reseal(bundle, **changes)
    with pytest.raises(InvalidInput, match=sentence):
        verify(bundle)
    if "names" in str(changes):
        return
    export_ladder(run, tmp_path / "models", 2, ExportOptions(("safetensors",)))
    index = json.loads((tmp_path / "models" / "ladder.json").read_text())
    index["rungs"][0] |= changes
    write_manifest(tmp_path / "models" / "ladder.json", index, list(index.pop("sha256")))
    with pytest.raises(InvalidInput, match=r"ladder\.json lists no bundles: export the ladder again"):
        Ladder.open(tmp_path / "models")
