"""A bundle: one network as a folder that needs torch alone, with a manifest that vouches for every file."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from fedfeast.errors import InvalidInput, in_one_line
from fedfeast.federation import OperatingPoint
from fedfeast.presentation.tables import served_round
from fedfeast.runs import Run
from fedfeast.serving.card import curve_picture, write_card
from fedfeast.serving.choice import Limits, MeasuredOn
from fedfeast.serving.extraction import BEFORE_ROUNDING, BundleOptions, Extracted, Extractor
from fedfeast.serving.families import standalone
from fedfeast.serving.families.registry import family_named
from fedfeast.serving.latency import LatencyMeter
from fedfeast.serving.manifest import (
    label_of,
    metric_of,
    read_manifest,
    require_sound,
    require_vouched,
    value_of,
    write_manifest,
)
from fedfeast.serving.phones.measurements import device_times
from fedfeast.units import format_macs
from fedfeast.whole_files import refuse_unknown_ending, whole_folder, write_text

FORMAT = "fedfeast-bundle/2"
REMEDY = "extract the bundle again"
UNTRAINED_WARNING = 0.01  # share of the weights


def extract(
    run: Run | Path | str,
    out: Path | str,
    limits: Limits,
    search: bool = False,
    force: bool = False,
    best: bool = False,
    options: BundleOptions | None = None,
) -> dict[str, Any]:
    """Write the largest affordable network of a run as a bundle, with force over one there; return its manifest.

    With ``search`` it is a network found for these limits, with ``best`` the one that validates best. ``options`` say
    whether its weights are rounded to float16, and whether its samples are drawn.
    """
    refuse_unknown_ending(Path(out))
    extractor = Extractor(run, options)
    with whole_folder(Path(out), is_written_here if force else None) as folder:
        return write_bundle(folder, *extract_affordable(extractor, limits, search, best))


def extract_affordable(
    extractor: Extractor, limits: Limits, search: bool = False, best: bool = False, meter: LatencyMeter | None = None
) -> tuple[Extracted, dict[str, Any]]:
    """Extract the largest, a searched or the best affordable network, and say by what it was chosen over which better.

    Best is what validates best. With ``search`` as well it is the better one of the searched and the served networks.
    """
    if best:
        extractor.require_validated()
    if limits.measured_on is not None:
        return _extract_measured(extractor, limits, limits.measured_on, search, best)
    if search:
        return _extract_searched(extractor, limits, best)
    measure = None if limits.max_latency_ms is None else meter or LatencyMeter(extractor)
    point = extractor.choose(limits, measure=measure, best=best)
    better = None if best else extractor.better(point, limits, measure)
    choice = chosen_facts(extractor, "best" if best else "largest", point, better)
    latency = {} if measure is None else {"latency": asdict(measure.latency(point))}
    return extractor.extract(point), {**latency, **choice}


def _extract_measured(
    extractor: Extractor, limits: Limits, measured_on: MeasuredOn, search: bool, best: bool
) -> tuple[Extracted, dict[str, Any]]:
    """Extract the largest or the best network that was measured on a device elsewhere."""
    if search:
        raise InvalidInput("--search finds networks that nobody has measured: leave it out, or --measured.")
    times = device_times(extractor.points, measured_on)
    point = times.choose(limits)
    better = extractor.better(point, limits, times)
    if best:
        point, better = better or point, None
    choice = chosen_facts(extractor, "best" if best else "largest", point, better)
    return extractor.extract(point), {"latency": times.latency(point), **choice}


def _extract_searched(extractor: Extractor, limits: Limits, best: bool) -> tuple[Extracted, dict[str, Any]]:
    """Extract a searched network; where a served one does better say so, or with ``best`` take that one."""
    searched = extractor.extract(extractor.choose(limits, search=True))
    if not any(limits.admit(one.price, one.parameters) for one in extractor.points):
        return searched, {"chosen_by": "search"}
    served = extractor.extract(extractor.choose(limits, best=True))
    # Clients that validate have not seen a searched network.
    split = "validation" if value_of(searched.facts, "validation") is not None else "test"
    metric, ours, theirs = extractor.metric, value_of(searched.facts, split), value_of(served.facts, split)
    if ours is None or theirs is None or metric.merit(theirs) <= metric.merit(ours):
        return searched, {"chosen_by": "search"}
    if best:
        return served, {"chosen_by": "best"}
    return searched, {"chosen_by": "search", "better": _facts_of(served.point, split, theirs, ours)}


def chosen_facts(
    extractor: Extractor, chosen_by: str, point: OperatingPoint, better: OperatingPoint | None
) -> dict[str, Any]:
    """Return what a manifest says of the choice: by what it was made, and which smaller network validates better."""
    if better is None:
        return {"chosen_by": chosen_by}
    values = extractor.validated()
    facts = _facts_of(better, "validation", values[better], values[point])
    return {
        "chosen_by": chosen_by,
        "better": {**facts, **({"compared": BEFORE_ROUNDING} if extractor.options.float16 else {})},
    }


def _facts_of(point: OperatingPoint, split: str, value: float, against: float) -> dict[str, Any]:
    """Return what a manifest says of a better network: what it is, and on what it has which value against its own."""
    costs = {"name": point.name, "macs": point.macs, "parameters": point.parameters}
    return {**costs, "measured_on": split, "value": value, "against": against}


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
    require_sound(folder / "manifest.json", manifest, REMEDY)
    own = standalone.PROGRAM if network.get("family") in standalone.PROGRAMS else "network.py"
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
        f"{format_macs(manifest['macs'])} MACs, {manifest['parameters']:,} parameters{kept}{_of_type(manifest)}, "
        f"{label_of(manifest)} {metric.show(value)}{_of_vector(manifest)}"
    )


def _of_type(manifest: Mapping[str, Any]) -> str:
    """Say in which type the parameters are written, where it is not the usual float32."""
    return f" in {manifest['weights']}" if "weights" in manifest else ""


def _of_vector(manifest: Mapping[str, Any]) -> str:
    """Say whose weights they are, where a run chose between its global vector and a running average of it."""
    run = manifest["run"]
    return f", round {served_round(run)}" if "served_vector" in run else ""
