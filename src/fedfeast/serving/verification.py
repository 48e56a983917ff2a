"""Verification: files against their hashes, and stored sample predictions run again."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.serving import exporting
from fedfeast.serving.bundle import REMEDY, load_bundle, read_bundle
from fedfeast.serving.exporting import LARGEST_DIFFERENCE, NORMALISED, difference_of, manifest_beside
from fedfeast.serving.families import standalone
from fedfeast.serving.families.standalone import Model
from fedfeast.serving.ladder import INDEX, Ladder
from fedfeast.serving.manifest import read_manifest, require_sound, require_vouched
from fedfeast.serving.onnx.plain import require_plain_network
from fedfeast.serving.onnx.session import Session

MOST_SAMPLES = 256  # of a bundle; extract writes 16


def verify(path: Path | str) -> list[dict[str, Any]]:
    """Check a bundle, a ladder or an exported file; return what was checked, one entry a network."""
    path = Path(path)
    if path.name in (INDEX, "manifest.json"):
        path = path.parent
    try:
        if (path / INDEX).is_file():
            return [verify_bundle(path / rung["folder"]) for rung in Ladder.open(path).rungs]
        return [verify_file(path) if path.is_file() else verify_bundle(path)]
    except (InvalidInput, OSError):
        raise
    except Exception as error:  # files of somebody else's making find every type
        raise InvalidInput(f"{path} is damaged or forged ({type(error).__name__}): {REMEDY}.") from error


def verify_bundle(folder: Path) -> dict[str, Any]:
    """Check a bundle's files, and predict its samples again with torch and with its ONNX file."""
    manifest = read_bundle(folder)
    samples = standalone.read_weights(folder / "samples.safetensors")
    if not 0 < len(samples["images"]) <= MOST_SAMPLES:
        raise InvalidInput(f"{folder} has {len(samples['images'])} samples and not 1 to {MOST_SAMPLES}: {REMEDY}.")
    names, outputs = manifest.get("vocabulary", manifest.get("class_names")), samples["logits"].shape[-1]
    if names is not None and manifest.get("task") != "regression" and len(names) != outputs:
        raise InvalidInput(f"{folder} has {len(names)} names for {outputs} outputs: {REMEDY}.")
    model = load_bundle(folder)
    differences: dict[str, float | None] = {"torch": _difference(model, samples, folder)}
    for name, facts in manifest.get("exports", {}).items():
        if facts["kind"] == "onnx":
            normalised = facts["input"].startswith(NORMALISED)
            predict = _predict(_session(folder / name), model, normalised) if find_spec("onnxruntime") else None
            differences[name] = None if predict is None else _difference(predict, samples, folder / name)
    listed = {*manifest["sha256"], "manifest.json", "__pycache__"}
    return {
        "path": str(folder),
        "macs": manifest["macs"],
        **_figures(manifest),
        "files": len(manifest["sha256"]),
        "samples": len(samples["labels"]),
        "largest_differences": differences,
        "unlisted": sorted(file.name for file in folder.iterdir() if file.name not in listed),
    }


def verify_file(path: Path) -> dict[str, Any]:
    """Check an exported file against the manifest beside it, and load it if it is ONNX."""
    places = (manifest_beside(path), path.with_suffix(".json"))  # the second as earlier versions called it
    described = next((place for place in places if place.is_file()), None)
    if described is None:
        name = places[0].name
        raise InvalidInput(f"{path} has no manifest {name} beside it: give its bundle's folder, or export it again.")
    manifest = read_manifest(described, "export it again")
    if manifest["format"] != exporting.FORMAT:
        raise InvalidInput(f"{path} is no exported file of this version of fedfeast: export it again.")
    if not manifest["exports"]:
        raise InvalidInput(f"{described} names no exported file: export it again.")
    if path.name not in (described.name, *manifest["exports"]):
        named = ", ".join(manifest["exports"])
        raise InvalidInput(f"{described} is of {named} and not of {path.name}: export it again.")
    require_vouched(described, manifest, list(manifest["exports"]), "export it again")
    require_sound(described, manifest, "export it again")
    for name in manifest["exports"]:
        if name.endswith(".onnx"):
            _session(path.with_name(name))
    facts = {"macs": manifest["macs"], **_figures(manifest)}
    return {"path": str(path), **facts, "files": 1, "samples": 0, "largest_differences": {}, "unlisted": []}


def _session(path: Path) -> Session:
    """Load an ONNX network of unknown making."""
    require_plain_network(path)
    return Session(path)


def _figures(manifest: dict[str, Any]) -> dict[str, Any]:
    keys = ("test_accuracy", "metric", "test_figures")
    return {key: manifest[key] for key in keys if key in manifest}


def _predict(session: Session, model: Model, normalised: bool) -> Callable[[Tensor], Tensor]:
    return (lambda inputs: session(model.normalise(inputs))) if normalised else session


@torch.no_grad()
def _difference(predict: Callable[[Tensor], Tensor], samples: dict[str, Tensor], what: Path) -> float:
    """Return how far the logits are from those that were stored; refuse more than rounding."""
    difference = difference_of(predict(samples["images"]), samples["logits"])
    if not difference < LARGEST_DIFFERENCE:
        raise InvalidInput(
            f"{what} predicts its samples otherwise than when it was written (logits differ by {difference:.1e}): "
            f"{REMEDY}, or use another version of torch or onnxruntime."
        )
    return difference
