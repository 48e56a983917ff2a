"""The model card of a bundle: what the network is, where it sits on its run's curve, how to use it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedfeast.presentation.chart import ACCURACY, Chart, Series, macs_axis
from fedfeast.presentation.chart import Point as ChartPoint
from fedfeast.presentation.pictures import svg_of
from fedfeast.units import format_macs

Point = Mapping[str, Any]
USE = """```python
import torch
from model import load            # model.py of this folder; torch is all it needs

model = load("path/of/this/folder")
images = torch.zeros(1, {channels}, {size}, {size}, dtype=torch.uint8)   # raw pixels, 0 to 255
with torch.no_grad():
    classes = model(images).argmax(dim=1)
```"""


def write_card(manifest: Mapping[str, Any], curve: Sequence[Point]) -> str:
    """Return the card in Markdown; curve has all measured points of the run, least MACs first."""
    run, network = manifest["run"], manifest["network"]
    sections = [
        f"# {run['data']} classifier of {format_macs(manifest['macs'])} MACs",
        f"A network of the federated run `{run['name']}`: recipe `{run['recipe']}`, method "
        f"`{run['method']}`, seed {run['seed']}, round {run['best_round']}; fedfeast {manifest['fedfeast']}.",
        _table(("", ""), _facts(manifest)),
        *_warnings(manifest),
        "## Where it sits",
        *(_curve(manifest, curve) if curve else ["The run's curve was not measured when this network was extracted."]),
        "## Use",
        USE.format(channels=network["image_channels"], size=network["image_size"]),
        f"Classes, in the order of the logits: {_names(manifest['class_names'])}.",
        *_exports(manifest.get("exports", {})),
        "`fedfeast verify FOLDER` checks every file against `manifest.json` and predicts the samples in "
        "`samples.safetensors` again.",
    ]
    return "\n\n".join(sections) + "\n"


def curve_picture(curve: Sequence[Point], manifest: Mapping[str, Any]) -> str:
    """Return the run's curve as SVG, this network marked on it."""
    this = {"macs": manifest["macs"], "accuracy": manifest["test_accuracy"]}
    series = (
        Series("the run's networks", _places(curve)),
        Series("this network", _places([this]), "warm", "ring", line=False),
    )
    return svg_of([Chart(macs_axis(), ACCURACY, series)])


def _facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    network, validation = manifest["network"], manifest["validation_accuracy"]
    size = network["image_size"]
    facts = [
        ("test accuracy", f"{100 * manifest['test_accuracy']:.2f} % ({manifest['accuracy_from']['test']})"),
        ("validation accuracy", "not measured" if validation is None else f"{100 * validation:.2f} %"),
        ("MACs of one inference", f"{manifest['macs']:,}{_dense(manifest, 'macs')}"),
        ("parameters", f"{manifest['parameters']:,}{_dense(manifest, 'parameters')}"),
        ("weights file", f"{manifest['bytes']:,} bytes, float32"),
        ("input", f"{network['image_channels']} x {size} x {size} pixels, 0 to 255"),
        ("architecture", f"{network['family']}: `{json.dumps(manifest['architecture'])}`"),
        ("batch-norm statistics", _statistics(manifest)),
    ]
    if "latency" in manifest:
        latency = manifest["latency"]
        measured = f"{latency['median_ms']:.3g} ms, median of {latency['repeats']} on {latency['device']}"
        facts.append(("latency", f"{measured} with {latency['threads']} threads"))
    return facts


def _dense(manifest: Mapping[str, Any], cost: str) -> str:
    masked = manifest["masked"]
    return f" kept, of {masked['dense'][cost]:,}" if masked else ""


def _warnings(manifest: Mapping[str, Any]) -> list[str]:
    lines = []
    if manifest["masked"]:
        lines.append(
            "**Note.** This is a masked network. Its MACs and parameters, here and on the curve, count the "
            f"{manifest['masked']['counted']}: fast only where zeros are skipped, small only where they are not stored."
        )
    if manifest["untrained_share"]:
        share = f"{100 * manifest['untrained_share']:.1f} %"
        lines.append(f"**Note.** {share} of this network's weights were never trained by any client.")
    if not manifest["cached"]:
        lines.append("This network was searched for after training: it is none of the sizes that were trained as such.")
    return lines


def _curve(manifest: Mapping[str, Any], curve: Sequence[Point]) -> list[str]:
    keys = ("name", "macs", "parameters")
    others = [point for point in curve if [point[key] for key in keys] != [manifest[key] for key in keys]]
    this = {**manifest, "accuracy": manifest["test_accuracy"], "this": True}
    rows, every = [], sorted([*others, this], key=lambda point: int(point["macs"]))
    best = max(every, key=lambda point: float(point["accuracy"]))
    for point in every:
        cells = [format_macs(point["macs"]), f"{point['parameters']:,}", f"{100 * point['accuracy']:.2f} %"]
        rows.append([*(f"**{cell}**" for cell in cells), "**this network**"] if "this" in point else [*cells, ""])
    gap = f"{100 * (best['accuracy'] - this['accuracy']):.2f} points below the run's most accurate"
    place = (
        f"Number {every.index(this) + 1} of {len(every)} by MACs, {gap}, which takes {format_macs(best['macs'])} MACs."
    )
    return [place, "![Test accuracy over MACs](curve.svg)", _table(("MACs", "parameters", "test accuracy", ""), rows)]


def _exports(exports: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if not exports:
        return []
    rows = [(f"`{name}`", _export(facts)) for name, facts in exports.items()]
    return ["## Other formats", _table(("file", ""), rows)]


def _export(facts: Mapping[str, Any]) -> str:
    parts = [facts["kind"], f"input {facts['input']}"]
    if "opset" in facts:
        parts.append(f"opset {facts['opset']}")
    if "accuracy_cost" in facts:
        accuracy = f"test accuracy {100 * facts['test_accuracy']:.2f} %"
        parts.append(f"{accuracy}, {100 * facts['accuracy_cost']:.2f} points below float32")
    else:
        parts.append(f"differs from torch by at most {facts['largest_difference']:.1e}")
    return "; ".join(parts)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 20 else f"{', '.join(names[:20])}, ... (all in `manifest.json`)"


def _places(points: Sequence[Point]) -> tuple[ChartPoint, ...]:
    return tuple(ChartPoint(point["macs"], 100 * point["accuracy"]) for point in points)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _statistics(manifest: Mapping[str, Any]) -> str:
    calibration = manifest["calibration"]
    if calibration.get("by") == "clients":
        return f"from sums that the run's clients gave (sha256 {calibration['sha256'][:12]}...)"
    examples, digest = calibration["examples"], calibration["sha256"]
    return f"recalibrated on {examples:,} server-held examples (sha256 {digest[:12]}...)"
