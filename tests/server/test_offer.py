import json
from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.machine import processor_and_cores
from fedfeast.server.offer import DamagedBundle, NothingFits, Offer, read_latencies
from fedfeast.serving.bundle_cache import BundleCache
from fedfeast.serving.choice import Limits
from fedfeast.whole_files import sha256_of


@pytest.fixture
def offer(folder: Path) -> Offer:
    return Offer(BundleCache(folder), "my run", folder / "latency.json")


def test_ids_name_weights_and_networks(offer: Offer, folder: Path) -> None:
    assert len(offer.by_id) == len(offer.bundles.points) == 8
    assert list(offer.by_id)[3].startswith("545920-")
    assert list(Offer(BundleCache(folder), "other name", folder / "none").by_id) == list(offer.by_id)
    assert offer.data_facts.input_shape == (1, 8, 8)


def test_the_largest_affordable_is_chosen(offer: Offer) -> None:
    assert offer.by_id[offer.choose(Limits(max_macs=6e5))].macs == 545_920
    assert offer.by_id[offer.choose(Limits(max_macs=6e5, max_parameters=4e4))].macs == 347_264
    assert offer.by_id[offer.choose(Limits(max_latency_ms=1e4))].macs == 4_974_848


def test_the_best_is_chosen_by_merits(offer: Offer) -> None:
    first, second, third, fourth = list(offer.by_id)[:4]
    limits, merits = Limits(max_macs=6e5), {first: 1.0, second: 4.0, third: 2.0, fourth: 3.0}
    assert offer.choose(limits) == fourth
    assert offer.better(fourth, limits, merits) == offer.choose(limits, best_by=merits) == second
    assert offer.better(second, limits, merits) is None


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        (Limits(max_macs=1e3), "no variant fits 1000 MACs: the least needs 128320 MACs, the smallest 7730 parameters."),
        (Limits(max_latency_ms=1e-9), "no served variant takes at most 1e-09 ms on this device"),
    ],
)
def test_nothing_fits(offer: Offer, limits: Limits, sentence: str) -> None:
    with pytest.raises(NothingFits, match=sentence) as caught:
        offer.choose(limits)
    assert (caught.value.least_macs, caught.value.least_parameters) == (128_320, 7_730)


def test_recorded_latencies_decide_where_they_are_of_this_device(folder: Path) -> None:
    bundles = BundleCache(folder)
    points = [{"name": one.name, "macs": one.macs, "median_ms": place} for place, one in enumerate(bundles.points, 1)]
    (folder / "latency.json").write_text(json.dumps({"device": processor_and_cores(), "points": points}))
    offer = Offer(bundles, "run", folder / "latency.json")
    assert offer.by_id[offer.choose(Limits(max_latency_ms=3.5))] == bundles.points[2]
    (folder / "latency.json").write_text(json.dumps({"device": "another", "points": points}))
    assert read_latencies(folder / "latency.json", bundles) == {}
    (folder / "latency.json").write_text("{")
    assert read_latencies(folder / "latency.json", bundles) == {}


def test_a_file_is_built_once_kept_and_checked(offer: Offer) -> None:
    name = next(iter(offer.by_id))
    assert offer.kept_file(name, "onnx") is None
    file = offer.file(name, "onnx")
    assert file.download_name == "my-run-128.3k.onnx"
    assert file.sha256 == sha256_of(file.path)
    assert offer.kept_file(name, "onnx") == file
    assert offer.file(name, "safetensors").path.name == "weights.safetensors"


def test_a_damaged_bundle_is_refused_until_it_is_deleted(offer: Offer) -> None:
    name = next(iter(offer.by_id))
    file = offer.file(name, "onnx")
    file.path.write_bytes(file.path.read_bytes()[:-1] + b"x")
    assert offer.kept_file(name, "onnx") is None
    folder = file.path.parent
    with pytest.raises(
        DamagedBundle, match=f"does not match its hash in the manifest: delete the folder {folder.name}"
    ):
        offer.file(name, "onnx")
    (folder / "manifest.json").unlink()
    with pytest.raises(InvalidInput, match="has no manifest: delete the folder, and it is built again"):
        offer.file(name, "onnx")
    for entry in folder.iterdir():
        entry.unlink()
    assert offer.file(name, "onnx").sha256 == file.sha256
