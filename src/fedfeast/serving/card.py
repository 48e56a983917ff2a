"""The model card of a bundle: what the network is, where it sits on its run's curve, how to use it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedfeast.data.tasks import Metric, task_named
from fedfeast.presentation.chart import ACCURACY, Axis, Chart, Series, macs_axis
from fedfeast.presentation.chart import Point as ChartPoint
from fedfeast.presentation.pictures import svg_of
from fedfeast.presentation.tables import served_round
from fedfeast.serving.manifest import better_in_words, label_of, metric_of, value_of
from fedfeast.units import format_macs, format_threads

Point = Mapping[str, Any]
USE = """```python
import torch
from model import load            # model.py of this folder; torch is all it needs

{model}
{inputs}
with torch.no_grad():
    {outputs}
```"""
TITLES = {"next-token": "next-token model", "multi-label": "labeller", "regression": "regression"}


def write_card(manifest: Mapping[str, Any], curve: Sequence[Point]) -> str:
    """Return the card in Markdown; curve has all measured points of the run, least MACs first."""
    run, kind = manifest["run"], TITLES.get(manifest.get("task", ""), "classifier")
    sections = [
        f"# {run['data']} {kind} of {format_macs(manifest['macs'])} MACs",
        f"A network of the federated run `{run['name']}`: recipe `{run['recipe']}`, method "
        f"`{run['method']}`, seed {run['seed']}, round {served_round(run)}; fedfeast {manifest['fedfeast']}.",
        _table(("", ""), _facts(manifest)),
        *_warnings(manifest),
        "## Where it sits",
        *(_curve(manifest, curve) if curve else ["The run's curve was not measured when this network was extracted."]),
        *(["The run's networks are those before rounding, in float32."] if curve and "weights" in manifest else []),
        "## Use",
        _use(manifest, 'model = load("path/of/this/folder")'),
        *_outputs(manifest),
        *_exports(manifest),
        "`fedfeast verify FOLDER` checks every file against `manifest.json` and predicts the samples in "
        f"`samples.safetensors` again.{_samples(manifest)}",
    ]
    return "\n\n".join(sections) + "\n"


def write_ladder_card(manifests: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the card of a ladder in Markdown, given the manifests of its bundles by folder, least MACs first."""
    every = list(manifests.values())
    smallest, largest = every[0], every[-1]
    run, kind, metric = largest["run"], TITLES.get(largest.get("task", ""), "classifier"), metric_of(largest)
    networks, costs = (
        f"{len(every)} networks",
        f"{format_macs(smallest['macs'])} to {format_macs(largest['macs'])} MACs",
    )
    if len(every) == 1:
        networks, costs = "A network", f"{format_macs(largest['macs'])} MACs"
    rows = [
        (
            f"[{folder}]({folder}/README.md)",
            f"{one['macs']:,}{_dense(one, 'macs')}",
            *([f"{one['price']:,}"] if "price" in one else []),
            f"{one['parameters']:,}{_dense(one, 'parameters')}",
            f"{one['bytes']:,}",
            metric.show(_value(one)),
        )
        for folder, one in manifests.items()
    ]
    priced = ["MACs that budgets are compared with"] if "price" in largest else []
    limit = max(one.get("price", one["macs"]) for one in (every[:-1] or every))
    sections = [
        f"# {run['data']} {kind}s of {costs}",
        f"{networks} of the federated run `{run['name']}`: recipe `{run['recipe']}`, method `{run['method']}`, data "
        f"`{run['data']}`, seed {run['seed']}, round {served_round(run)}; fedfeast {largest['fedfeast']}.",
        _table(("folder", "MACs", *priced, "parameters", "bytes of the weights", label_of(largest)), rows),
        *_ladder_notes(every),
        "## Use",
        _use(largest, f'model = load("path/of/this/folder", max_macs={limit})   # the largest that fits'),
        *_outputs(largest),
        "`fedfeast serve FOLDER` shows them on a page and hands each device the one that it affords. `fedfeast verify "
        "FOLDER` checks every file of every network against its `manifest.json`, and predicts the samples in "
        f"`samples.safetensors` again.{_samples(largest)}",
    ]
    return "\n\n".join(sections) + "\n"


def _ladder_notes(manifests: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what holds for all networks of a ladder, and on what they were measured."""
    largest = manifests[-1]
    sources = list(dict.fromkeys(_sources(one)["test"] for one in manifests))
    notes = [f"{label_of(largest).capitalize()}: {'; '.join(sources)}."]
    if "weights" in largest:
        difference = max(one["rounding_difference"] for one in manifests)
        notes.append(f"Weights are {_rounding({**largest, 'rounding_difference': difference})}.")
    if largest["exports"]:
        notes.append(f"Every folder also holds {', '.join(f'`{name}`' for name in largest['exports'])}.")
    return notes


def _rounding(manifest: Mapping[str, Any]) -> str:
    """Say in which type the weights are written, and what rounding has changed."""
    if "weights" not in manifest:
        return "float32"
    moved = f"outputs of the samples moved by at most {manifest['rounding_difference']:.1e}"
    return f"rounded to {manifest['weights']} ({moved}); the network computes in float32"


def _samples(manifest: Mapping[str, Any]) -> str:
    return f" These are {manifest['samples_from']}." if "samples_from" in manifest else ""


def _sources(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    sources: Mapping[str, Any] = manifest["figures_from" if "task" in manifest else "accuracy_from"]
    return sources


def curve_picture(curve: Sequence[Point], manifest: Mapping[str, Any]) -> str:
    """Return the run's curve as SVG, this network marked on it."""
    metric = metric_of(manifest)
    this = {"macs": manifest["macs"], "value": value_of(manifest)}
    series = (
        Series("the run's networks", _places(curve, metric)),
        Series("this network", _places([this], metric), "warm", "ring", line=False),
    )
    unit = f" ({metric.unit.strip()})" if metric.unit else ""
    label = label_of(manifest)
    axis = replace(ACCURACY, label=f"{label} (%)") if metric.name == "accuracy" else Axis(f"{label}{unit}")
    return svg_of([Chart(macs_axis(), axis, series)])


def _facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    metric, validation = metric_of(manifest), value_of(manifest, "validation")
    sources = _sources(manifest)
    validated_on = f" ({sources['validation']})" if "weights" in manifest else ""
    facts = [
        (
            label_of(manifest),
            f"{metric.show(_value(manifest))} ({sources['test']})",
        ),
        (
            f"validation {metric.name}",
            "not measured" if validation is None else f"{metric.show(validation)}{validated_on}",
        ),
        *_other_figures(manifest),
        ("MACs of one inference", f"{manifest['macs']:,}{_dense(manifest, 'macs')}"),
        *([("MACs that budgets are compared with", f"{manifest['price']:,}")] if "price" in manifest else []),
        ("parameters", f"{manifest['parameters']:,}{_dense(manifest, 'parameters')}"),
        ("weights file", f"{manifest['bytes']:,} bytes, {_rounding(manifest)}"),
        ("input", _input(manifest["network"])),
        ("architecture", f"{_family(manifest['network'])}: `{json.dumps(manifest['architecture'])}`"),
        ("batch-norm statistics", _statistics(manifest)),
    ]
    if "latency" in manifest:
        latency = manifest["latency"]
        measured = f"{latency['median_ms']:.3g} ms, median of {latency['repeats']} on {latency['device']}"
        how = "measured there" if "measured_elsewhere" in latency else f"with {format_threads(latency['threads'])}"
        facts.append(("latency", f"{measured} {how}"))
    return facts


def _other_figures(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "task" not in manifest:
        return []
    others = [one for one in task_named(manifest["task"]).metrics if one.name != manifest["metric"]]
    return [(f"test {one.name}", one.show(manifest["test_figures"][one.name])) for one in others]


def _input(network: Mapping[str, Any]) -> str:
    if "input" not in network:
        size = network["image_size"]
        return f"{network['image_channels']} x {size} x {size} pixels, 0 to 255"
    shape = " x ".join(map(str, network["input"]["shape"]))
    if network["input"]["kind"] == "images":
        return f"{shape} pixels, 0 to 255"
    return f"{shape} {'token ids' if network['input']['kind'] == 'tokens' else 'numbers'}, {network['input']['dtype']}"


def _family(network: Mapping[str, Any]) -> str:
    if network["family"] == "traced":
        return f"the method's own `{network['type']}`, which `model.pt2` does not need"
    if network["family"] != "built":
        return str(network["family"])
    return (
        f"builder `{network['builder']}` (sha256 {network['builder_sha256'][:12]}...), which `model.pt2` does not need"
    )


def _statistics(manifest: Mapping[str, Any]) -> str:
    if manifest["network"].get("batch_norms") == 0:
        return "none: no layer needs them"
    calibration = manifest["calibration"]
    if calibration.get("by") == "clients":
        return f"from sums that the run's clients gave (sha256 {calibration['sha256'][:12]}...)"
    examples, digest = calibration["examples"], calibration["sha256"]
    return f"recalibrated on {examples:,} server-held examples (sha256 {digest[:12]}...)"


def _use(manifest: Mapping[str, Any], model: str) -> str:
    network = manifest["network"]
    if "input" not in network:
        shape, dtype, name = [network["image_channels"], *[network["image_size"]] * 2], "uint8", "images"
    else:
        shape, dtype = network["input"]["shape"], network["input"]["dtype"]
        name = "images" if network["input"]["kind"] == "images" else "inputs"
    raw = {"images": "raw pixels, 0 to 255", "inputs": "as the data have them"}[name]
    inputs = f"{name} = torch.zeros(1, {', '.join(map(str, shape))}, dtype=torch.{dtype})   # {raw}"
    outputs = {
        "next-token": f"logits = model({name})   # (batch, length, vocabulary)",
        "multi-label": f"labels = model({name}) > 0",
        "regression": f"numbers = model({name})",
    }.get(manifest.get("task", ""), f"classes = model({name}).argmax(dim=1)")
    return USE.format(model=model, inputs=inputs, outputs=outputs)


def _outputs(manifest: Mapping[str, Any]) -> list[str]:
    """Say what the outputs stand for, where the data have names for it."""
    if "vocabulary" in manifest:
        return [f"Symbols, in the order of the logits: {_names([repr(one) for one in manifest['vocabulary']])}."]
    if "class_names" not in manifest:
        return []
    what = (
        "Targets, in the order of the outputs"
        if manifest.get("task") == "regression"
        else (
            "Labels, in the order of the logits"
            if manifest.get("task") == "multi-label"
            else "Classes, in the order of the logits"
        )
    )
    return [f"{what}: {_names(manifest['class_names'])}."]


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
    better = better_in_words(manifest)
    if better is not None:
        lines.append(f"**Note.** Within the same limits {better}.")
    return lines


def _curve(manifest: Mapping[str, Any], curve: Sequence[Point]) -> list[str]:
    keys = ("name", "macs", "parameters")
    others = [point for point in curve if [point[key] for key in keys] != [manifest[key] for key in keys]]
    metric, this = metric_of(manifest), {**manifest, "value": _value(manifest), "this": True}
    rows, every = [], sorted([*others, this], key=lambda point: int(point["macs"]))
    best = max(every, key=lambda point: metric.merit(_measured(point)))
    for point in every:
        cells = [format_macs(point["macs"]), f"{point['parameters']:,}", metric.show(_measured(point))]
        rows.append([*(f"**{cell}**" for cell in cells), "**this network**"] if "this" in point else [*cells, ""])
    gap = metric.merit(_measured(best)) - metric.merit(_measured(this))
    points = f"{100 * gap:.2f} points below" if metric.is_share else f"{gap:.3g} {metric.name} behind"
    champion = "the run's most accurate" if metric.name == "accuracy" else f"the run's best by {metric.name}"
    place = (
        f"Number {every.index(this) + 1} of {len(every)} by MACs, {points} {champion}, "
        f"which takes {format_macs(best['macs'])} MACs."
    )
    heading = label_of(manifest)
    picture = f"![{heading.capitalize()} over MACs](curve.svg)"
    return [place, picture, _table(("MACs", "parameters", heading, ""), rows)]


def _exports(manifest: Mapping[str, Any]) -> list[str]:
    if not manifest.get("exports"):
        return []
    rows = [(f"`{name}`", _export(facts, manifest)) for name, facts in manifest["exports"].items()]
    return ["## Other formats", _table(("file", ""), rows)]


def _export(facts: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    unquantised = manifest.get("weights", "float32")
    parts = [facts["kind"], f"input {facts['input']}"]
    if "opset" in facts:
        parts.append(f"opset {facts['opset']}")
    if "metric_cost" in facts:
        parts.append(f"{facts['metric_cost']:.3g} worse than {unquantised}")
    elif "accuracy_cost" in facts:
        accuracy = f"test accuracy {100 * facts['test_accuracy']:.2f} %"
        parts.append(f"{accuracy}, {100 * facts['accuracy_cost']:.2f} points below {unquantised}")
    else:
        parts.append(f"differs from torch by at most {facts['largest_difference']:.1e}")
    return "; ".join(parts)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 20 else f"{', '.join(names[:20])}, ... (all in `manifest.json`)"


def _places(points: Sequence[Point], metric: Metric) -> tuple[ChartPoint, ...]:
    ordered = sorted(points, key=lambda point: int(point["macs"]))  # budgets may be compared with other MACs
    return tuple(ChartPoint(point["macs"], metric.shown(_measured(point))) for point in ordered)


def _value(manifest: Mapping[str, Any]) -> float:
    value = value_of(manifest)
    assert value is not None
    return value


def _measured(point: Point) -> float:
    """Return a point's value; runs of the first release have it as its accuracy alone."""
    return float(point["value"] if "value" in point else point["accuracy"])


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
