from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import pytest
import torch

import fedfeast
from fedfeast.serving.bundle_cache import BundleCache
from fedfeast.serving.choice import Limits
from fedfeast.serving.exporting import ExportOptions
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.onnx.session import Session
from fedfeast.serving.verification import verify


@pytest.fixture
def folder(run: fedfeast.Run, tmp_path: Path) -> Path:
    copytree(run.folder.path, tmp_path / "run")
    return tmp_path / "run"


def test_a_network_is_built_once_and_kept(folder: Path) -> None:
    bundles = BundleCache(folder)
    point = bundles.points[1]
    assert bundles.accuracy(point) == fedfeast.Run.open(folder).curve.points[1].accuracy
    bundle = bundles.bundle(point)
    verify(bundle)
    written = (bundle / "manifest.json").stat().st_mtime_ns
    assert BundleCache(folder).bundle(point) == bundle
    assert (bundle / "manifest.json").stat().st_mtime_ns == written
    logits = Session(bundle / "model.onnx")(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
    assert logits.shape == (1, 10)


def test_threads_share_it(folder: Path) -> None:
    bundles = BundleCache(folder)
    with ThreadPoolExecutor(4) as pool:
        places = list(pool.map(bundles.bundle, [bundles.points[0], bundles.points[1]] * 3))
    assert len(set(places)) == 2
    assert len(list(bundles.folder.iterdir())) == 2


def test_a_searched_network_has_a_place_of_its_own(folder: Path) -> None:
    bundles = BundleCache(folder)
    found = Extractor(folder).choose(Limits(max_macs=300e3), search=True)
    assert found not in bundles.points
    assert verify(bundles.bundle(found))[0]["macs"] == found.macs


def test_rounded_networks_are_kept_apart(folder: Path) -> None:
    plain = BundleCache(folder, ExportOptions(("safetensors",)))
    rounded = BundleCache(folder, ExportOptions(("safetensors",), float16=True, drawn_samples=True))
    assert rounded.folder.name == f"{plain.folder.name}-float16-drawn-samples"
    sizes = [(one.bundle(one.points[0]) / "weights.safetensors").stat().st_size for one in (plain, rounded)]
    assert sizes[1] < sizes[0]
