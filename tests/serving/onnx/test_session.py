from pathlib import Path

import pytest
import torch

from fedfeast.errors import InvalidInput
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.onnx.graph import build_onnx
from fedfeast.serving.onnx.session import DEFAULT_OPSET, LEAST_OPSET, Session, require_opset


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
