"""A bundle: one network as a folder that needs torch alone, with a manifest that vouches for every file."""

import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from fedfeast.errors import InvalidInput, in_one_line
from fedfeast.presentation.tables import served_round
from fedfeast.runs import Run
from fedfeast.serving.card import curve_picture, write_card
from fedfeast.serving.choice import Limits
from fedfeast.serving.extraction import Extracted, Extractor
from fedfeast.serving.families import standalone
from fedfeast.serving.families.registry import family_named
from fedfeast.serving.latency import measured_choice
from fedfeast.serving.manifest import label_of, metric_of, read_manifest, require_vouched, value_of, write_manifest
from fedfeast.units import format_macs
from fedfeast.whole_files import refuse_unknown_ending, whole_folder, write_text

FORMAT = "fedfeast-bundle/2"
REMEDY = "extract the bundle again"
UNTRAINED_WARNING = 0.01  # share of the weights


def extract(
    run: Run | Path | str, out: Path | str, limits: Limits, search: bool = False, force: bool = False
) -> dict[str, Any]:
    """Write the largest affordable network of a run as a bundle, with force over one there; return its manifest."""
    refuse_unknown_ending(Path(out))
    extractor = Extractor(run)
    with whole_folder(Path(out), is_written_here if force else None) as folder:
        point, measured = measured_choice(extractor, limits, search)
        return write_bundle(folder, extractor.extract(point), measured)


def write_bundle(
    folder: Path, extracted: Extracted, more: Mapping[str, Any] | None = None, more_files: Iterable[str] = ()
) -> dict[str, Any]:
    """Fill an empty folder with weights, loader, samples, card and, last, the manifest; return what that says.

    ``more`` adds to the manifest, and ``more_files`` names files that lie in the folder already.
    """
    # save_file would let nobody else read it
    (folder / "weights.safetensors").write_bytes(save(dict(extracted.tensors)))
    inputs, labels = extracted.samples.inputs, extracted.samples.labels
    with torch.no_grad():
        outputs = extracted.model(inputs)
    # Their names are those of the first bundles, which held images.
    (folder / "samples.safetensors").write_bytes(save({"images": inputs, "labels": labels, "logits": outputs}))
    write_text(folder / "model.py", loader_source())
    own_files = extracted.family.write(folder, extracted.model)
    content = {
        "format": FORMAT,
        **extracted.facts,
        "bytes": (folder / "weights.safetensors").stat().st_size,
        **(more or {}),
    }
    others = [name for name in more_files if name not in own_files]
    files = ["weights.safetensors", "samples.safetensors", "model.py", *own_files, "README.md", *others]
    if extracted.curve:
        write_text(folder / "curve.svg", curve_picture(extracted.curve, content))
        files.append("curve.svg")
    write_text(folder / "README.md", write_card(content, extracted.curve))
    return write_manifest(folder / "manifest.json", content, files)


def loader_source() -> str:
    """Return the file with which bundles and ladders are loaded."""
    return resources.files("fedfeast.serving.families").joinpath("standalone.py").read_text(encoding="utf-8")


def is_written_here(folder: Path) -> bool:
    """Return whether a folder is a bundle or a ladder, which another one may replace."""
    for name in ("manifest.json", "ladder.json"):
        try:
            return str(json.loads((folder / name).read_text(encoding="utf-8"))["format"]).startswith("fedfeast-")
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return False


def read_bundle(folder: Path) -> dict[str, Any]:
    """Return a bundle's manifest after checking its seal and every file against its hash."""
    if not (folder / "manifest.json").is_file():
        raise InvalidInput(f"{folder} is no bundle (it has no manifest.json): give a folder that extract wrote.")
    manifest = read_manifest(folder / "manifest.json", REMEDY)
    if manifest["format"] != FORMAT:
        raise InvalidInput(f"{folder} has the format {manifest['format']!r} and not {FORMAT!r}: {REMEDY}.")
    network, exports = manifest.get("network"), manifest.get("exports", {})
    if not isinstance(network, dict) or not isinstance(exports, dict):
        raise InvalidInput(f"{folder / 'manifest.json'} describes no network: {REMEDY}.")
    own = standalone.PROGRAM if network.get("family") == "built" else "network.py"
    needed = ("weights.safetensors", "samples.safetensors", "model.py", own, *exports)
    require_vouched(folder / "manifest.json", manifest, needed, REMEDY)
    return manifest


def load_bundle(folder: Path | str) -> standalone.Model:
    """Return a bundle's network, its files checked against their hashes; no code of the bundle is run."""
    folder = Path(folder)
    table = read_bundle(folder)["network"]
    try:
        return family_named(table).load(folder, table)
    except InvalidInput:
        raise
    except Exception as error:  # a manifest and weights of somebody else's making find every type
        raise InvalidInput(f"{folder} does not fit its manifest ({in_one_line(error)}): {REMEDY}.") from error


def describe_bundle(manifest: Mapping[str, Any]) -> str:
    """Say in one line what a bundle holds."""
    kept = f" kept of {format_macs(manifest['masked']['dense']['macs'])} MACs" if manifest["masked"] else ""
    metric, value = metric_of(manifest), value_of(manifest)
    assert value is not None
    return (
        f"{format_macs(manifest['macs'])} MACs, {manifest['parameters']:,} parameters{kept}, "
        f"{label_of(manifest)} {metric.show(value)}{_of_vector(manifest)}"
    )


def _of_vector(manifest: Mapping[str, Any]) -> str:
    """Say whose weights they are, where a run chose between its global vector and a running average of it."""
    run = manifest["run"]
    return f", round {served_round(run)}" if "served_vector" in run else ""
