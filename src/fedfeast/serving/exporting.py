"""Export: a network as ONNX, int8 where wanted, as a torch.export program or for ExecuTorch, each checked by torch."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from fedfeast.data.tasks import CLASSIFICATION
from fedfeast.errors import InvalidInput
from fedfeast.runs import Run
from fedfeast.serving.accuracy import Predict, measure_figures
from fedfeast.serving.bundle import extract_affordable, is_written_here, write_bundle
from fedfeast.serving.choice import Limits
from fedfeast.serving.extraction import BundleOptions, Extracted, Extractor
from fedfeast.serving.families.built import BuiltFamily, BuiltModel
from fedfeast.serving.families.standalone import PROGRAM, Model
from fedfeast.serving.manifest import metric_of, value_of, write_manifest
from fedfeast.serving.onnx.graph import DEFAULT_OPSET, build_onnx
from fedfeast.serving.onnx.int8 import quantise
from fedfeast.serving.onnx.program import LEAST_OPSET as TORCH_OPSET
from fedfeast.serving.onnx.session import LEAST_OPSET, Session, require_opset
from fedfeast.serving.phones.executorch import LoweredNetwork, lower, require_executorch
from fedfeast.whole_files import make_folder, refuse_unknown_ending, whole_folder, write_whole

Format = Literal["onnx", "int8", "pt2", "executorch", "safetensors"]
FILES: dict[Format, str] = {  # beside the weights.safetensors of every bundle
    "onnx": "model.onnx",
    "int8": "model.int8.onnx",
    "pt2": "model.pt2",
    "executorch": "model.pte",
}
SUFFIXES = (".onnx", ".pt2", ".pte")  # of a single file
MADE_ELSEWHERE = ("litert", "coreml")  # out of a bundle: their libraries do not fit beside ours, or do not run here
FORMAT = "fedfeast-export/1"
NORMALISED = "float32, normalised"  # how the words on such a file's input begin
LARGEST_DIFFERENCE = 1e-4  # between a logit of torch and of an exported network
CHECKED_EXAMPLES = 64


@dataclass(frozen=True)
class ExportOptions(BundleOptions):
    """Which files to write of a network."""

    formats: tuple[Format, ...] = ("onnx",)  # safetensors: what every bundle holds, and no further file
    opset: int | None = None  # None: the default of the network's family
    takes_pixels: bool = True  # inputs go in as the data have them, e.g. uint8 images; else normalised already

    def __post_init__(self) -> None:
        elsewhere = next((one for one in self.formats if one in MADE_ELSEWHERE), None)
        if elsewhere is not None:
            raise InvalidInput(
                f"--format {elsewhere} is not written here: export a bundle, and convert that as docs/phones.md says."
            )
        unknown = [one for one in self.formats if one not in get_args(Format)]
        if unknown or not self.formats:
            raise InvalidInput(f"--format {','.join(unknown)}: choose of {', '.join(get_args(Format))}.")
        if not self.takes_pixels and set(self.formats) == {"safetensors"}:
            raise InvalidInput(
                "--normalised is for exported files, and --format safetensors writes none: leave one of them out."
            )


class Exporter:
    """Writes a run's extracted networks in other formats; what it needs is checked before any work begins."""

    def __init__(self, extractor: Extractor, options: ExportOptions) -> None:
        self._extractor, self._options = extractor, options
        built = isinstance(extractor.family, BuiltFamily)
        least, default = (TORCH_OPSET, TORCH_OPSET) if built else (LEAST_OPSET, DEFAULT_OPSET)
        self.opset = default if options.opset is None else options.opset
        if {"onnx", "int8"} & set(options.formats):
            require_opset(self.opset, least, default)
        if "executorch" in options.formats:
            require_executorch()
        if built and not options.takes_pixels and extractor.run.recipe.data.facts.kind == "tokens":
            raise InvalidInput("--normalised: token ids are not normalised, so leave it out.")

    def write(self, extracted: Extracted, folder: Path) -> dict[str, dict[str, Any]]:
        """Write every wanted format into a folder; return what manifests say of each file, by its name."""
        files = {FILES[one]: one for one in self._options.formats if one in FILES}
        return {name: self.write_file(extracted, one, folder / name) for name, one in files.items()}

    def write_bundle(self, extracted: Extracted, folder: Path, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Fill an empty folder with a bundle that holds the wanted formats; ``more`` adds to its manifest."""
        if (
            isinstance(extracted.model, BuiltModel)
            and "pt2" in self._options.formats
            and not self._options.takes_pixels
        ):
            raise InvalidInput(
                f"--normalised: a bundle of an own network holds {PROGRAM}, which normalises its inputs itself: "
                "leave it out, or give a single file as --out."
            )
        exports = self.write(extracted, folder)
        return write_bundle(folder, extracted, {**(more or {}), "exports": exports}, exports)

    def write_file(self, extracted: Extracted, kind: Format, path: Path) -> dict[str, Any]:
        """Write one file and say what it is, how far it is from torch, and what int8 costs."""
        model = extracted.model
        raw = "uint8 pixels" if model.input_dtype == torch.uint8 else str(model.input_dtype).removeprefix("torch.")
        form = raw if self._options.takes_pixels else NORMALISED
        batch = "1" if kind == "executorch" else "batch"
        facts: dict[str, Any] = {"kind": kind, "input": f"{form} ({batch}, {', '.join(map(str, model.input_shape))})"}
        if kind == "pt2":
            facts |= self._write_program(model, path)
        elif kind == "executorch":
            facts |= self._write_lowered(model, path)
        else:
            facts |= self._write_onnx(extracted, kind, path)
        return {**facts, "bytes": path.stat().st_size}

    def _write_onnx(self, extracted: Extracted, kind: Format, path: Path) -> dict[str, Any]:
        if kind == "int8" and not self._extractor.has_test:
            raise InvalidInput(
                "int8 is calibrated and measured on examples, and the run's data set is not here: leave int8 out, or "
                "point data.folder at its files."
            )
        options, model = self._options, extracted.model
        metadata = onnx_metadata(extracted.facts)
        network = build_onnx(model, self.opset, options.takes_pixels, metadata).SerializeToString(deterministic=True)
        checked = self.check(self._predict(Session(network), model), model)
        if kind == "onnx":
            path.write_bytes(network)
            return {"opset": self.opset, **checked}
        quantise(network, path, self._extractor.calibration, self._prepare(model))
        test = self._extractor.test.to(torch.device("cpu"))
        figures = measure_figures(self._predict(Session(path), model), test, self._extractor.task)
        facts = {"opset": self.opset, "calibration_examples": len(self._extractor.calibration)}
        if "test_accuracy" not in extracted.facts:
            metric, before = metric_of(extracted.facts), value_of(extracted.facts)
            assert before is not None
            cost = metric.merit(before) - metric.merit(figures[metric.name])
            return {**facts, "test_figures": figures, "metric_cost": cost}
        accuracy = figures["accuracy"]
        return {**facts, "test_accuracy": accuracy, "accuracy_cost": extracted.facts["test_accuracy"] - accuracy}

    def _program(self, model: Model) -> torch.export.ExportedProgram:
        if isinstance(model, BuiltModel):
            return model.program(self._options.takes_pixels)
        module: torch.nn.Module = model if self._options.takes_pixels else model.network
        # The file keeps this input, so that it is none of the examples.
        images = self._prepare(model)(torch.zeros(2, *model.input_shape, dtype=torch.uint8))
        return torch.export.export(module, (images,), dynamic_shapes=({0: torch.export.Dim("batch")},))

    def _write_program(self, model: Model, path: Path) -> dict[str, Any]:
        program = self._program(model)
        checked = self.check(self._predict(program.module(), model), model)
        content = io.BytesIO()
        torch.export.save(program, content)
        path.write_bytes(content.getvalue())  # by us, since torch's own errors do not say that a disk is full
        return checked

    def _write_lowered(self, model: Model, path: Path) -> dict[str, Any]:
        example = self._prepare(model)(torch.zeros(1, *model.input_shape, dtype=model.input_dtype))
        content = lower(self._program(model), example)
        checked = self.check(self._predict(LoweredNetwork(content), model), model)
        path.write_bytes(content)
        return {"executorch": require_executorch(), **checked}

    def _prepare(self, model: Model) -> Callable[[Tensor], Tensor]:
        """Return what turns inputs as the data have them into those of an exported network."""
        if self._options.takes_pixels:
            return lambda inputs: inputs.cpu().to(model.input_dtype)
        return lambda inputs: model.normalise(inputs.cpu())

    def _predict(self, network: Predict, model: Model) -> Predict:
        prepare = self._prepare(model)
        return lambda images: network(prepare(images))

    @torch.no_grad()
    def check(self, predict: Predict, model: Model) -> dict[str, Any]:
        """Compare with torch on test examples, or drawn ones where there are none; refuse what differs."""
        images = self._extractor.checked.inputs[:CHECKED_EXAMPLES].cpu()
        expected, logits = model(images), predict(images)
        difference, same = difference_of(logits, expected), True
        if expected.dim() == 2 and expected.shape[1] > 1 and self._extractor.task == CLASSIFICATION:
            first, second = expected.topk(2, dim=1).values.T
            decided = first - second > 2 * LARGEST_DIFFERENCE  # of the others either class may come out first
            same = bool((logits.argmax(dim=1) == expected.argmax(dim=1))[decided].all())
        if not difference < LARGEST_DIFFERENCE or not same:
            kind = "test" if self._extractor.has_test else "drawn"
            raise InvalidInput(
                f"the exported network differs from torch by {difference:.1e} on {len(images)} {kind} examples, "
                f"more than {LARGEST_DIFFERENCE:g}: it was not written; try another --opset."
            )
        return {"checked_examples": len(images), "largest_difference": difference}


def onnx_metadata(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return what an ONNX file says of its network, as JSON by name; a browser has the names of classes from it."""
    kept = ["fedfeast", "run", "name", "macs", "parameters", "test_accuracy", "class_names"]
    kept += ["task", "metric", "test_figures", "vocabulary"]  # of other tasks
    return {key: json.dumps(manifest[key]) for key in kept if key in manifest}


def difference_of(outputs: Tensor, expected: Tensor) -> float:
    """Return how far outputs are apart at most; beyond 100, where float32 itself is coarser, by the hundred."""
    return float((outputs - expected).abs().max()) / max(1.0, float(expected.abs().max()) / 100)


def export(
    run: Run | Path | str,
    out: Path | str,
    limits: Limits,
    options: ExportOptions | None = None,
    search: bool = False,
    force: bool = False,
    best: bool = False,
) -> dict[str, Any]:
    """Write the largest affordable network of a run, with force over what was written there; return its manifest.

    With ``search`` it is a network found for these limits, with ``best`` the one that validates best. A path that
    ends in .onnx, .pt2 or .pte becomes that file, with its manifest beside it (model.onnx.json); one without an ending
    a bundle that holds the wanted formats, too; that alone can be rounded to float16 or have drawn samples.
    """
    out, options = Path(out), options or ExportOptions()
    refuse_unknown_ending(out, SUFFIXES)
    if out.suffix in SUFFIXES:
        kind = _format_of(out, options)
        _refuse_existing_file(out, force)
        return _export_file(run, out, limits, replace(options, formats=(kind,)), search, best)
    extractor = Extractor(run, options)
    exporter = Exporter(extractor, options)
    with whole_folder(out, is_written_here if force else None) as folder:
        extracted, more = extract_affordable(extractor, limits, search, best)
        return exporter.write_bundle(extracted, folder, more)


def _export_file(
    run: Run | Path | str, out: Path, limits: Limits, options: ExportOptions, search: bool, best: bool
) -> dict[str, Any]:
    """Write one file and, when it is in place, the manifest beside it."""
    (kind,), manifest_path = options.formats, manifest_beside(out)
    extractor = Extractor(run)
    exporter = Exporter(extractor, options)
    extracted, more = extract_affordable(extractor, limits, search, best)
    make_folder(out.parent, out)
    facts: dict[str, Any] = {}
    manifest_path.unlink(missing_ok=True)  # a replaced file's, which would not be true of the new one
    write_whole(out, lambda temporary: facts.update(exporter.write_file(extracted, kind, temporary)))
    content = {"format": FORMAT, **extracted.facts, **more, "bytes": facts["bytes"], "exports": {out.name: facts}}
    return write_manifest(manifest_path, content, [out.name])


def manifest_beside(file: Path) -> Path:
    """Return where the manifest of an exported file lies: its whole name, so that no two files share one."""
    return file.with_name(f"{file.name}.json")


def _refuse_existing_file(out: Path, force: bool) -> None:
    if out.is_dir():
        raise InvalidInput(f"--out {out} is a folder: give a new file.")
    existing = next((path for path in (out, manifest_beside(out)) if path.exists()), None)
    if existing is not None and not force:
        beside = "" if existing == out else f": {existing}"
        raise InvalidInput(f"--out {out}{beside} exists: give a new file, or replace it with --force.")


def _format_of(out: Path, options: ExportOptions) -> Format:
    """Return the one format of a file: its suffix says which, int8 is asked for; refuse what only bundles have."""
    asked = set(options.formats)
    if options.float16:
        raise InvalidInput(
            f"--float16 rounds the weights of a bundle, and {out} is one file in float32: give a folder as --out, or "
            "leave it out."
        )
    if options.drawn_samples:
        raise InvalidInput(
            f"--drawn-samples are those of a bundle, and {out} is one file without samples: leave it out."
        )
    if "safetensors" in asked:
        raise InvalidInput(
            f"--format safetensors is a bundle alone, and {out} is one file: give a folder as --out, or leave it out."
        )
    if out.suffix == ".onnx" and not asked & {"pt2", "executorch"}:
        return "int8" if "int8" in asked else "onnx"
    if out.suffix == ".pt2" and not asked & {"int8", "executorch"}:
        return "pt2"
    if out.suffix == ".pte" and not asked & {"int8", "pt2"}:
        return "executorch"
    raise InvalidInput(
        f"--out {out} is one file, and {', '.join(options.formats)} was asked for: give a folder, which holds all of "
        "them."
    )
