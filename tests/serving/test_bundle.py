import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.serving.bundle import describe_bundle, extract, load_bundle, read_bundle
from fedfeast.serving.choice import Limits
from fedfeast.serving.manifest import seal_of

FILES = {"weights.safetensors", "samples.safetensors", "model.py", "network.py", "README.md", "curve.svg"}


def test_the_manifest_vouches_for_every_file(bundle: Path) -> None:
    manifest = read_bundle(bundle)
    assert manifest["bytes"] == (bundle / "weights.safetensors").stat().st_size
    assert set(manifest["sha256"]) == FILES == {file.name for file in bundle.iterdir()} - {"manifest.json"}
    assert "this network" in (bundle / "README.md").read_text()


def test_the_largest_affordable_network_by_macs_parameters_or_both(run: fedfeast.Run, tmp_path: Path) -> None:
    manifest = extract(run, tmp_path / "bundle", Limits(max_macs=600e3))
    assert (manifest["macs"], manifest["parameters"], manifest["cached"]) == (545_920, 48_578, True)
    assert describe_bundle(manifest).startswith("545.9k MACs, 48,578 parameters, test accuracy ")
    masked = {**manifest, "masked": {"dense": {"macs": 2e6}}}
    assert "48,578 parameters kept of 2M MACs, test" in describe_bundle(masked)
    assert manifest == json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert extract(run, tmp_path / "one", Limits(max_parameters=40_000))["parameters"] == 38_898
    assert extract(run, tmp_path / "two", Limits(300e3, 40_000))["parameters"] == 15_954


def test_the_same_network_gives_the_same_bytes(run: fedfeast.Run, bundle: Path, tmp_path: Path) -> None:
    extract(run, tmp_path / "again", Limits(max_macs=200e3))
    for file in bundle.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name


def test_the_loaded_network_has_the_manifests_accuracy(run: fedfeast.Run, bundle: Path) -> None:
    test = run.federation.test.test
    with torch.no_grad():
        right = load_bundle(bundle)(test.inputs).argmax(1) == test.labels
    assert np.isclose(float(right.double().mean()), read_bundle(bundle)["test_accuracy"], atol=2 / len(test))


def test_others_may_read_it(bundle: Path) -> None:
    assert {oct(file.stat().st_mode & 0o777) for file in bundle.iterdir()} == {"0o644"}


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_flipped_byte_is_refused(bundle: Path, name: str) -> None:
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)
    with pytest.raises(InvalidInput, match=f"{name} does not match its hash"):
        load_bundle(bundle)


def test_a_missing_file_and_an_edited_manifest_are_refused(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "test_accuracy": 0.99}))
    with pytest.raises(InvalidInput, match="was changed after it was written"):
        load_bundle(bundle)
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    (bundle / "weights.safetensors").unlink()
    with pytest.raises(InvalidInput, match=r"weights\.safetensors is missing"):
        load_bundle(bundle)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "fedfeast-bundle/1"}, "has the format 'fedfeast-bundle/1' and not 'fedfeast-bundle/2'"),
        ({"network": {"family": "other"}}, "network family 'other' is unknown"),
        ({"network": {"family": "elastic-resnet"}}, "does not fit its manifest"),
    ],
)
def test_a_manifest_of_something_else_is_refused(bundle: Path, change: dict[str, object], sentence: str) -> None:
    manifest = {**json.loads((bundle / "manifest.json").read_text()), **change}
    (bundle / "manifest.json").write_text(json.dumps({**manifest, "seal": seal_of(manifest)}))
    with pytest.raises(InvalidInput, match=sentence):
        load_bundle(bundle)


def test_no_code_of_a_bundle_is_run(bundle: Path) -> None:
    for name in ("model.py", "network.py"):
        (bundle / name).write_text("raise SystemExit('run')")
    with pytest.raises(InvalidInput, match="does not match its hash"):
        load_bundle(bundle)


def test_no_bundle_no_run_and_no_overwriting(run: fedfeast.Run, bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is no bundle"):
        read_bundle(tmp_path)
    with pytest.raises(InvalidInput, match="not an empty folder"):
        extract(run, bundle, Limits(max_macs=600e3))
    with pytest.raises(InvalidInput, match="is no run folder"):
        extract(tmp_path, tmp_path / "other", Limits(max_macs=600e3))
    with pytest.raises(InvalidInput, match="no served variant fits 1000 MACs: the smallest has 128320 MACs"):
        extract(run, tmp_path / "other", Limits(max_macs=1000))
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_run_without_a_finished_round(tmp_path: Path) -> None:
    fedfeast.Run.create("digits", tmp_path / "run")
    with pytest.raises(InvalidInput, match="has no validated round yet: train on with fedfeast train"):
        extract(tmp_path / "run", tmp_path / "bundle", Limits(max_macs=600e3))
