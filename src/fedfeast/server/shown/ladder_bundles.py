"""A ladder's networks as files: where a bundle has no ONNX file that takes raw inputs, one is built and kept."""

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load

from fedfeast.data import DatasetFacts
from fedfeast.errors import InvalidInput
from fedfeast.federation import OperatingPoint
from fedfeast.own_code import home_folder
from fedfeast.serving.bundle import load_bundle, read_bundle
from fedfeast.serving.bundle_cache import GoneRun
from fedfeast.serving.exporting import FILES, LARGEST_DIFFERENCE, NORMALISED, difference_of, onnx_metadata
from fedfeast.serving.families.standalone import read_input
from fedfeast.serving.ladder import INDEX, Ladder
from fedfeast.serving.latency import Latency, measure_latency
from fedfeast.serving.manifest import value_of, write_manifest
from fedfeast.serving.onnx.graph import build_onnx, default_opset
from fedfeast.serving.onnx.session import Session
from fedfeast.whole_files import make_folder, whole_folder

ONNX = FILES["onnx"]


class LadderBundles:
    """Bundles of a ladder; safe to share between threads.

    A ladder is somebody's folder and may be read-only: what is built for it is kept in the user's own.
    """

    def __init__(self, ladder: Ladder) -> None:
        self._ladder = ladder
        self._rungs = {_point(rung): rung for rung in ladder.rungs}
        self._latencies: dict[OperatingPoint, Latency] = {}
        self._lock = threading.Lock()
        self.points: tuple[OperatingPoint, ...] = tuple(self._rungs)
        self.folder = home_folder() / "ladders" / f"ladder-{ladder.index['seal'][:16]}"
        self.data_facts = data_facts_of(read_bundle(self._place(self.points[0])))

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the ladder says of the run that it was taken from."""
        return dict(self._ladder.index["run"])

    def accuracy(self, point: OperatingPoint) -> float | None:
        """Return a point's test accuracy as the ladder has it."""
        return self._rungs[point].get("test_accuracy")

    def value(self, point: OperatingPoint) -> float | None:
        """Return a point's scoring metric on the test set."""
        return value_of(self._rungs[point])

    def interval(self, point: OperatingPoint) -> None:
        """Return nothing: a ladder does not say how many examples a figure was measured on."""

    def validated(self) -> Mapping[OperatingPoint, float]:
        """Return the points' scoring metric on the validation examples, of those that have one."""
        values = {point: value_of(rung, "validation") for point, rung in self._rungs.items()}
        return {point: value for point, value in values.items() if value is not None}

    def latency(self, point: OperatingPoint) -> Latency:
        """Return a point's latency on this device, measured once."""
        with self._lock:
            if point not in self._latencies:
                self._latencies[point] = measure_latency(load_bundle(self._place(point)))
            return self._latencies[point]

    def bundle(self, point: OperatingPoint) -> Path:
        """Return the folder of a point's bundle: the ladder's own, or one that was built with an ONNX file."""
        if not (self._ladder.folder / INDEX).is_file():
            raise GoneRun("the ladder's folder is gone: nothing can be built from it.")
        place = self._place(point)
        manifest = read_bundle(place)
        own = manifest.get("exports", {}).get(ONNX)
        if own is not None and not own["input"].startswith(NORMALISED):
            return place
        kept = self.folder / place.name
        with self._lock:
            if not (kept / "manifest.json").is_file():
                make_folder(self.folder, self.folder)
                with whole_folder(kept) as folder:
                    _add_onnx(place, manifest, folder)
        return kept

    def _place(self, point: OperatingPoint) -> Path:
        return self._ladder.folder / str(self._rungs[point]["folder"])


def data_facts_of(manifest: Mapping[str, Any]) -> DatasetFacts:
    """Return what a bundle's manifest says of the examples that its network takes."""
    shape, dtype = read_input(manifest["network"])
    names = manifest["vocabulary"] if "vocabulary" in manifest else manifest["class_names"]
    images = dtype == torch.uint8 and len(shape) == 3 and shape[1] == shape[2]
    kind = "images" if images else "numbers" if "mean" in manifest["network"] else "tokens"
    channels, side = (shape[0], shape[-1]) if len(shape) > 1 else (1, shape[0])
    task = manifest.get("task", "classification")
    return DatasetFacts(len(names), channels, side, 0, 0, kind=kind, task=task, shape=() if images else shape)


def _point(rung: Mapping[str, Any]) -> OperatingPoint:
    # Networks are told apart by the folders that they lie in.
    return OperatingPoint(rung["name"], rung["macs"], rung["parameters"], rung["folder"], rung.get("price"))


def _add_onnx(place: Path, manifest: Mapping[str, Any], folder: Path) -> None:
    """Copy a bundle into an empty folder, and put an ONNX file beside it that agrees with torch on the samples."""
    model = load_bundle(place)
    names = [name for name in manifest["sha256"] if name != ONNX]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(place / name, folder / name)
    graph = build_onnx(model, default_opset(model), takes_pixels=True, metadata=onnx_metadata(manifest))
    network = graph.SerializeToString(deterministic=True)
    inputs = load((place / "samples.safetensors").read_bytes())["images"]
    with torch.no_grad():
        difference = difference_of(Session(network)(inputs), model(inputs))
    if not difference < LARGEST_DIFFERENCE:
        raise InvalidInput(f"the ONNX file of {place.name} differs from torch by {difference:.1e}: export it anew.")
    (folder / ONNX).write_bytes(network)
    facts = {"kind": "onnx", "input": "raw", "checked_examples": len(inputs), "largest_difference": difference}
    content = {key: value for key, value in manifest.items() if key not in ("sha256", "seal")}
    exports = {**manifest.get("exports", {}), ONNX: {**facts, "bytes": len(network)}}
    write_manifest(folder / "manifest.json", {**content, "exports": exports}, [*names, ONNX])
