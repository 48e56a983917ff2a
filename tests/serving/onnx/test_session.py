import ast
import sys
from pathlib import Path

import pytest
import torch

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.serving.accuracy import measure_accuracy
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.onnx.graph import DEFAULT_OPSET, build_onnx
from fedfeast.serving.onnx.int8 import quantise
from fedfeast.serving.onnx.packages import import_onnx, import_onnxruntime
from fedfeast.serving.onnx.session import LEAST_OPSET, Session, require_opset


def test_known_opsets_pass() -> None:
    require_opset(LEAST_OPSET)
    require_opset(DEFAULT_OPSET)


@pytest.mark.parametrize("opset", [-1, 0, 12, 99, 1 << 40])
def test_an_opset_that_onnxruntime_does_not_know_is_refused(opset: int) -> None:
    with pytest.raises(InvalidInput, match=rf"--opset {opset}: onnxruntime [\d.]+ and fedfeast know 13 to \d\d"):
        require_opset(opset)


@pytest.mark.parametrize("shape", [(1, 1, 9, 8), (1, 3, 8, 8), (1, 8, 8)])
def test_an_image_of_the_wrong_size_is_refused(extractor: Extractor, shape: tuple[int, ...]) -> None:
    session = Session(build_onnx(extractor.uncalibrated(extractor.points[0]), 17, True).SerializeToString())
    with pytest.raises(InvalidInput, match=r"images have the shape .*: this network takes \(batch, 1, 8, 8\)"):
        session(torch.zeros(shape, dtype=torch.uint8))


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no network")
    with pytest.raises(InvalidInput, match=r"onnxruntime [\d.]+ cannot load the network") as caught:
        Session(tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)


def test_a_quantised_network_is_smaller_and_predicts_alike(extractor: Extractor, tmp_path: Path) -> None:
    extracted = extractor.extract(extractor.points[-1], validate=False)
    network = build_onnx(extracted.model, 17, takes_pixels=True).SerializeToString()
    quantise(network, tmp_path / "int8.onnx", extractor.calibration, lambda images: images)
    assert (tmp_path / "int8.onnx").stat().st_size < 0.4 * len(network)
    session = Session(tmp_path / "int8.onnx")
    with torch.no_grad():
        alike = session(extractor.test.inputs).argmax(dim=1) == extracted.model(extractor.test.inputs).argmax(dim=1)
    assert float(alike.double().mean()) > 0.9
    assert abs(measure_accuracy(session, extractor.test) - extracted.facts["test_accuracy"]) < 0.06
    assert [file.name for file in tmp_path.iterdir()] == ["int8.onnx"]


SOURCE = Path(fedfeast.__file__).parent


def test_the_packages_are_here() -> None:
    assert import_onnx().helper
    assert import_onnxruntime().InferenceSession


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InvalidInput, match=r"needs the onnx package: pip install 'fedfeast\[export\]'"):
        import_onnx()
    with pytest.raises(InvalidInput, match=r"needs the onnxruntime package: pip install 'fedfeast\[export\]'"):
        import_onnxruntime()


def test_nothing_imports_them_at_the_top_of_a_file() -> None:
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not {"onnx", "onnxruntime"} & {name.split(".")[0] for name in names}, path
