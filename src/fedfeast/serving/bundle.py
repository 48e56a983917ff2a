"""A bundle: one network as a folder that needs torch alone, with a manifest that vouches for every file."""

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from fedfeast.data import Normalisation
from fedfeast.errors import InvalidInput
from fedfeast.federation import Deployed
from fedfeast.networks import Architecture, SearchSpace
from fedfeast.networks.normalisation import Statistics
from fedfeast.runs.files import sha256_of, write_json, write_text, write_whole
from fedfeast.serving import standalone

FORMAT = "fedfeast-bundle/1"


def write_bundle(folder: Path, weights: Mapping[str, Tensor], manifest: Mapping[str, Any]) -> None:
    """Write weights, loader and, last, the manifest with the hashes of both."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"--out {folder} exists and is not an empty folder: give a new one.")
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in weights.items()}
    write_whole(folder / "weights.safetensors", lambda temporary: save_file(tensors, temporary))
    write_text(folder / "model.py", resources.files("fedfeast.serving").joinpath("standalone.py").read_text())
    files = ("weights.safetensors", "model.py")
    described = {
        "format": FORMAT,
        **manifest,
        "bytes": (folder / "weights.safetensors").stat().st_size,
        "sha256": {name: sha256_of(folder / name) for name in files},
    }
    write_json(folder / "manifest.json", described)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return a bundle's manifest after checking every file against its hash."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise InvalidInput(f"{folder} is no bundle (it has no manifest.json): give a folder that extract wrote.")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        hashes = dict(manifest["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} is damaged: extract the bundle again.") from error
    for name, expected in hashes.items():
        if not (folder / name).is_file() or sha256_of(folder / name) != expected:
            raise InvalidInput(f"{folder / name} does not match its hash in the manifest: extract the bundle again.")
    return manifest


def load_bundle(folder: Path | str) -> standalone.Model:
    """Return a bundle's network, its files checked against their hashes."""
    read_manifest(Path(folder))
    return standalone.load(folder)


def state_dict_of(deployed: Deployed, statistics: Statistics) -> dict[str, Tensor]:
    """Return the deployed tensors under the names of the stand-alone module, with the served statistics."""
    endings = {".scale": ".weight", ".shift": ".bias"}
    tensors = {}
    for name, view in deployed.layout.views(deployed.flat).items():
        stem, _, ending = name.rpartition(".")
        if f".{ending}" in endings:
            tensors[stem + endings[f".{ending}"]] = view
        else:
            tensors[name if stem == "head" else f"{name}.weight"] = view
    for name, (mean, variance) in statistics.items():
        tensors[f"{name}.running_mean"], tensors[f"{name}.running_var"] = mean, variance
    return tensors


def describe_network(space: SearchSpace, architecture: Architecture, normalisation: Normalisation) -> dict[str, Any]:
    """Return what the stand-alone module needs to rebuild an architecture."""
    return {
        "image_channels": space.image_channels,
        "image_size": space.image_size,
        "classes": space.classes,
        "mean": list(normalisation.mean),
        "deviation": list(normalisation.deviation),
        "stem": {"channels": space.stem_width(architecture), "stride": space.stem_stride},
        "stages": [
            {
                "channels": space.stage_width(architecture, stage),
                "middle": space.middle_width(architecture, stage),
                "blocks": 1 + depth,
                "stride": space.stage_strides[stage],
            }
            for stage, depth in enumerate(architecture.depths)
        ],
    }
