import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny import TINY

import fedfeast
from fedfeast.data import Examples
from fedfeast.errors import InvalidInput
from fedfeast.serving.accuracy import ACCURACY_BATCH, measure_accuracy
from fedfeast.serving.bundle import extract
from fedfeast.serving.choice import Limits
from fedfeast.serving.exporting import LARGEST_DIFFERENCE, Exporter, ExportOptions, export
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.families.standalone import load
from fedfeast.serving.onnx.session import Session
from fedfeast.serving.verification import verify

LIMITS = Limits(max_macs=600e3)


def test_one_file_and_its_manifest(run: fedfeast.Run, tmp_path: Path) -> None:
    manifest = export(run, tmp_path / "model.onnx", LIMITS)
    assert manifest == json.loads((tmp_path / "model.onnx.json").read_text())
    assert {file.name for file in tmp_path.iterdir()} == {"model.onnx", "model.onnx.json"}
    facts = manifest["exports"]["model.onnx"]
    assert (facts["kind"], facts["opset"], facts["checked_examples"]) == ("onnx", 17, 64)
    assert facts["largest_difference"] < LARGEST_DIFFERENCE
    assert facts["input"] == "uint8 pixels (batch, 1, 8, 8)"
    assert facts["bytes"] == manifest["bytes"] == (tmp_path / "model.onnx").stat().st_size
    assert manifest["macs"] == 545_920


def test_the_best_one_as_a_file_and_as_a_bundle(validated_as: Callable[..., fedfeast.Run], tmp_path: Path) -> None:
    run, program = validated_as(0.9, 0.2, 0.3, 0.4), ExportOptions(("pt2",))
    assert export(run, tmp_path / "largest.pt2", LIMITS, program)["better"]["macs"] == 128_320
    for name in ("best.pt2", "best"):
        manifest = export(run, tmp_path / name, LIMITS, program, best=True)
        assert (manifest["macs"], manifest["chosen_by"], "better" in manifest) == (128_320, "best", False)


def test_a_bundle_with_every_format(run: fedfeast.Run, tmp_path: Path) -> None:
    options = ExportOptions(("onnx", "int8", "pt2"), opset=15)
    manifest = export(run, tmp_path / "bundle", LIMITS, options)
    files = {"model.onnx", "model.int8.onnx", "model.pt2"}
    assert set(manifest["exports"]) == files
    assert files < set(manifest["sha256"])
    int8 = manifest["exports"]["model.int8.onnx"]
    assert int8["accuracy_cost"] == pytest.approx(manifest["test_accuracy"] - int8["test_accuracy"])
    assert int8["calibration_examples"] == 120
    assert manifest["exports"]["model.pt2"]["largest_difference"] < LARGEST_DIFFERENCE
    assert "points below float32" in (tmp_path / "bundle" / "README.md").read_text()
    images = run.federation.test.test.inputs[:7]
    program = torch.export.load(tmp_path / "bundle" / "model.pt2").module()
    with torch.no_grad():
        expected = load(tmp_path / "bundle")(images)
        torch.testing.assert_close(program(images), expected)
    torch.testing.assert_close(Session(tmp_path / "bundle" / "model.onnx")(images), expected, rtol=1e-4, atol=1e-4)


def test_signed_branches_are_served_as_they_were_trained(tmp_path: Path) -> None:
    settings = {**TINY, "training.rounds": 1, "training.clients_per_round": 2, "network.branch": "signed"}
    run = fedfeast.train("digits", out=tmp_path / "run", settings={**settings, "network.branch_scale": 0.2})
    manifest = export(run, tmp_path / "bundle", LIMITS, ExportOptions(("onnx", "pt2")))
    assert manifest["network"]["branch"] == "signed"
    images, labels = run.federation.test.test.inputs, run.federation.test.test.labels
    program = torch.export.load(tmp_path / "bundle" / "model.pt2").module()
    with torch.no_grad():
        expected = load(tmp_path / "bundle")(images)
        torch.testing.assert_close(program(images), expected)
        torch.testing.assert_close(Session(tmp_path / "bundle" / "model.onnx")(images), expected, rtol=1e-4, atol=1e-4)
        assert float((expected.argmax(1) == labels).double().mean()) == pytest.approx(manifest["test_accuracy"])


def test_normalised_images_as_an_option(run: fedfeast.Run, tmp_path: Path) -> None:
    options = ExportOptions(("onnx", "int8", "pt2"), takes_pixels=False)
    manifest = export(run, tmp_path / "bundle", LIMITS, options)
    assert {facts["input"] for facts in manifest["exports"].values()} == {"float32, normalised (batch, 1, 8, 8)"}
    model, images = load(tmp_path / "bundle"), run.federation.test.test.inputs[:7]
    program = torch.export.load(tmp_path / "bundle" / "model.pt2").module()
    with torch.no_grad():
        expected = model(images)
        for network in (Session(tmp_path / "bundle" / "model.onnx"), program):
            torch.testing.assert_close(network(model.normalise(images)), expected, rtol=1e-4, atol=1e-4)
    assert manifest["exports"]["model.int8.onnx"]["test_accuracy"] > manifest["test_accuracy"] - 0.1


def test_suffix_and_int8_say_what_one_file_is(run: fedfeast.Run, tmp_path: Path) -> None:
    program = export(run, tmp_path / "model.pt2", LIMITS, ExportOptions(("pt2",)))
    assert program["exports"]["model.pt2"]["kind"] == "pt2"
    quantised = export(run, tmp_path / "small.onnx", LIMITS, ExportOptions(("onnx", "int8")))
    assert quantised["exports"]["small.onnx"]["kind"] == "int8"
    for name, formats in {"a.onnx": ("onnx", "pt2"), "a.pt2": ("pt2", "int8")}.items():
        with pytest.raises(InvalidInput, match=f"{name} is one file"):
            export(run, tmp_path / name, LIMITS, ExportOptions(formats))  # type: ignore[arg-type]


def test_what_cannot_be_is_said_and_nothing_is_written(run: fedfeast.Run, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="--opset 99"):
        export(run, tmp_path / "model.onnx", LIMITS, ExportOptions(opset=99))
    with pytest.raises(InvalidInput, match="--format tflite: choose of onnx, int8, pt2"):
        ExportOptions(("tflite",))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="--normalised is for exported files, and --format safetensors writes none"):
        ExportOptions(("safetensors",), takes_pixels=False)
    for options, sentence in (
        (ExportOptions(float16=True), r"--float16 rounds the weights of a bundle, and .*model.onnx is one file in"),
        (ExportOptions(drawn_samples=True), r"--drawn-samples are those of a bundle, and .*model.onnx is one file"),
        (ExportOptions(("safetensors",)), r"--format safetensors is a bundle alone, and .*model.onnx is one file"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            export(run, tmp_path / "model.onnx", LIMITS, options)
    with pytest.raises(InvalidInput, match="no served variant fits 5 MACs"):
        export(run, tmp_path / "model.onnx", Limits(max_macs=5))
    with pytest.raises(InvalidInput, match="no served variant fits 5 MACs"):
        export(run, tmp_path / "bundle", Limits(max_macs=5))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "model.onnx.json").write_text("mine")
    with pytest.raises(InvalidInput, match=r"model.onnx.json exists: give a new file, or replace it with --force"):
        export(run, tmp_path / "model.onnx", LIMITS)
    assert (tmp_path / "model.onnx.json").read_text() == "mine"
    for name in ("model.tflite", "model.pth", "models.ONNX"):
        with pytest.raises(InvalidInput, match=r"which is not written: end a file in .onnx, .pt2 or .pte, or give a"):
            export(run, tmp_path / name, LIMITS)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx.json"]


def test_two_formats_of_one_name_and_a_forced_second_try(run: fedfeast.Run, tmp_path: Path) -> None:
    for name in ("model.onnx", "model.pt2"):
        export(run, tmp_path / name, LIMITS, ExportOptions(("pt2",) if name.endswith("pt2") else ("onnx",)))
        assert verify(tmp_path / name)[0]["macs"] == 545_920
    larger = export(run, tmp_path / "model.onnx", Limits(max_macs=2e6), force=True)
    assert verify(tmp_path / "model.onnx")[0]["macs"] == larger["macs"] == 1_776_576
    assert verify(tmp_path / "model.pt2")[0]["macs"] == 545_920
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(InvalidInput, match=r"folder.onnx is a folder: give a new file"):
        export(run, tmp_path / "folder.onnx", LIMITS, force=True)


def test_force_replaces_a_bundle_and_nothing_else(run: fedfeast.Run, tmp_path: Path) -> None:
    export(run, tmp_path / "bundle-0.5", LIMITS)
    with pytest.raises(InvalidInput, match="exists and is not an empty folder: give a new one, or add --force"):
        export(run, tmp_path / "bundle-0.5", LIMITS)
    (tmp_path / "bundle-0.5" / "notes.txt").touch()
    assert extract(run, tmp_path / "bundle-0.5", Limits(max_macs=2e5), force=True)["macs"] == 128_320
    assert verify(tmp_path / "bundle-0.5")[0]["unlisted"] == []
    assert [file.name for file in tmp_path.iterdir() if not file.name.endswith(".lock")] == ["bundle-0.5"]
    with pytest.raises(InvalidInput, match="holds something else than --force may replace"):
        export(run, run.folder.path, LIMITS, force=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text('{"format": "mine"}')
    with pytest.raises(InvalidInput, match="holds something else than --force may replace"):
        extract(run, tmp_path / "other", LIMITS, force=True)


def test_a_manifest_beside_a_file_as_earlier_versions_named_it_is_read(run: fedfeast.Run, tmp_path: Path) -> None:
    export(run, tmp_path / "model.onnx", LIMITS)
    (tmp_path / "model.onnx.json").rename(tmp_path / "model.json")
    assert verify(tmp_path / "model.onnx")[0]["macs"] == 545_920
    (tmp_path / "model.pt2").touch()
    with pytest.raises(InvalidInput, match=r"model.json is of model.onnx and not of model.pt2: export it again"):
        verify(tmp_path / "model.pt2")


def test_a_network_that_differs_from_torch_is_not_written(extractor: Extractor, tmp_path: Path) -> None:
    extracted = extractor.extract(extractor.points[0], validate=False)
    exporter = Exporter(extractor, ExportOptions())
    assert exporter.check(extracted.model, extracted.model)["largest_difference"] == 0
    with pytest.raises(InvalidInput, match=r"differs from torch by 2.0e-04 on 64 test examples"):
        exporter.check(lambda images: extracted.model(images) + 2e-4, extracted.model)
    with pytest.raises(InvalidInput, match="differs from torch by nan"):
        exporter.check(lambda images: extracted.model(images) * torch.nan, extracted.model)


def test_the_share_of_right_answers_over_several_batches() -> None:
    number = 2 * ACCURACY_BATCH + 3
    labels = torch.arange(number) % 4
    examples = Examples(labels.to(torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2), labels)
    sizes = []

    def predict(images: torch.Tensor) -> torch.Tensor:
        sizes.append(len(images))
        guessed = images[:, 0, 0, 0].long().clamp(max=2)  # class 3 is never guessed
        return torch.nn.functional.one_hot(guessed, 4).float()

    assert measure_accuracy(predict, examples) == float((labels < 3).double().mean())
    assert sizes == [ACCURACY_BATCH, ACCURACY_BATCH, 3]


def test_exports_of_a_rounded_network_are_built_from_it(run: fedfeast.Run, tmp_path: Path) -> None:
    options = ExportOptions(("onnx", "int8", "pt2"), float16=True)
    manifest = export(run, tmp_path / "bundle", LIMITS, options)
    images, model = run.federation.test.test.inputs, fedfeast.load_bundle(tmp_path / "bundle")
    program = torch.export.load(tmp_path / "bundle" / "model.pt2").module()
    with torch.no_grad():
        rounded = model(images)
        for predict in (Session(tmp_path / "bundle" / "model.onnx"), program):
            assert float((predict(images) - rounded).abs().max()) < 5e-5
    extract(run, tmp_path / "plain", LIMITS)
    with torch.no_grad():
        assert float((fedfeast.load_bundle(tmp_path / "plain")(images) - rounded).abs().max()) > 5e-4
    int8 = manifest["exports"]["model.int8.onnx"]
    assert int8["accuracy_cost"] == pytest.approx(manifest["test_accuracy"] - int8["test_accuracy"])
    assert "points below float16" in (tmp_path / "bundle" / "README.md").read_text()
    assert set(verify(tmp_path / "bundle")[0]["largest_differences"]) == {"torch", "model.onnx"}


def test_the_bundle_alone(run: fedfeast.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = export(run, tmp_path / "beside", LIMITS, ExportOptions(("safetensors", "onnx")))
    assert set(beside["exports"]) == {"model.onnx"}
    for name in ("onnx", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    manifest = export(run, tmp_path / "alone", LIMITS, ExportOptions(("safetensors",)))
    assert manifest["exports"] == {}
    assert {file.suffix for file in (tmp_path / "alone").iterdir()} == {".safetensors", ".py", ".md", ".svg", ".json"}
    assert "Other formats" not in (tmp_path / "alone" / "README.md").read_text()
    assert verify(tmp_path / "alone")[0]["largest_differences"] == {"torch": 0.0}


def test_with_drawn_samples_no_file_holds_an_example(run: fedfeast.Run, tmp_path: Path) -> None:
    federation = run.federation
    parts = (federation.test.test, federation.test.calibration, federation.examples.pool)
    examples = {image.numpy().tobytes() for part in parts for image in part.inputs.cpu()}
    for drawn in (False, True):
        options = ExportOptions(("onnx", "int8", "pt2"), drawn_samples=drawn)
        manifest = export(run, tmp_path / str(drawn), LIMITS, options)
        holding = [
            file.name for file in sorted((tmp_path / str(drawn)).iterdir()) if _holds_any(file.read_bytes(), examples)
        ]
        assert holding == ([] if drawn else ["samples.safetensors"])
        assert ("samples_from" in manifest) == drawn
    assert verify(tmp_path / "True")[0]["samples"] == 16


def _holds_any(content: bytes, examples: set[bytes]) -> bool:
    size = len(next(iter(examples)))
    return any(content[start : start + size] in examples for start in range(len(content) - size + 1))
