from pathlib import Path

import torch

from fedfeast.serving.accuracy import measure_accuracy
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.onnx.graph import build_onnx
from fedfeast.serving.onnx.int8 import quantise
from fedfeast.serving.onnx.session import Session


def test_a_quantised_network_is_smaller_and_predicts_alike(extractor: Extractor, tmp_path: Path) -> None:
    extracted = extractor.extract(extractor.points[-1], validate=False)
    network = build_onnx(extracted.model, 17, takes_pixels=True).SerializeToString()
    quantise(network, tmp_path / "int8.onnx", extractor.calibration, lambda images: images)
    assert (tmp_path / "int8.onnx").stat().st_size < 0.4 * len(network)
    session = Session(tmp_path / "int8.onnx")
    with torch.no_grad():
        alike = session(extractor.test.images).argmax(dim=1) == extracted.model(extractor.test.images).argmax(dim=1)
    assert float(alike.double().mean()) > 0.9
    assert abs(measure_accuracy(session, extractor.test) - extracted.facts["test_accuracy"]) < 0.06
    assert [file.name for file in tmp_path.iterdir()] == ["int8.onnx"]
