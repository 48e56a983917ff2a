import sys
from pathlib import Path

import pytest
import torch
from sequence_networks import small_char_model
from tiny import TINY

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.serving.choice import Limits
from fedfeast.serving.exporting import LARGEST_DIFFERENCE, ExportOptions, export
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.phones.executorch import LoweredNetwork, lower
from fedfeast.serving.verification import verify


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> fedfeast.Run:
    """A network of few layers: lowering takes its time for each."""
    settings = {**TINY, "training.rounds": 1, "training.clients_per_round": 2}
    return fedfeast.train("digits", out=tmp_path_factory.mktemp("runs") / "run", settings=settings)


def test_a_file_for_phones_is_run_against_torch(
    tiny: fedfeast.Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    manifest = export(tiny, tmp_path / "model.pte", Limits(max_macs=1e9))
    assert capfd.readouterr().err == "", "what ExecuTorch writes of other devices is of no use here"
    facts = manifest["exports"]["model.pte"]
    assert (facts["kind"], facts["input"], facts["checked_examples"]) == ("executorch", "uint8 pixels (1, 1, 8, 8)", 64)
    assert facts["largest_difference"] < LARGEST_DIFFERENCE
    assert facts["executorch"].startswith("1.5.")
    extractor = Extractor(tiny)
    model = extractor.extract(extractor.points[-1], validate=False).model
    network, images = LoweredNetwork((tmp_path / "model.pte").read_bytes()), tiny.federation.test.test.inputs[64:80]
    with torch.no_grad():
        torch.testing.assert_close(network(images), model(images), rtol=1e-4, atol=1e-4)
    assert verify(tmp_path / "model.pte")[0]["macs"] == manifest["macs"]


def test_a_bundle_for_phones_that_takes_normalised_inputs(tiny: fedfeast.Run, tmp_path: Path) -> None:
    options = ExportOptions(("pt2", "executorch"), takes_pixels=False)
    manifest = export(tiny, tmp_path / "bundle", Limits(max_macs=1e9), options)
    assert manifest["exports"]["model.pte"]["input"] == "float32, normalised (1, 1, 8, 8)"
    assert "| `model.pte` | executorch; input float32, normalised" in (tmp_path / "bundle" / "README.md").read_text()
    assert "model.pte" in manifest["sha256"]


def test_an_own_network_of_tokens() -> None:
    model = small_char_model()
    tokens = torch.arange(24).reshape(4, 6) % 7
    network = LoweredNetwork(lower(model.program(), tokens[:1]))
    with torch.no_grad():
        torch.testing.assert_close(network(tokens), model(tokens), rtol=1e-4, atol=1e-4)


def test_which_file_a_name_stands_for(tiny: fedfeast.Run, tmp_path: Path) -> None:
    for out, formats in (("model.pte", ("pt2",)), ("model.onnx", ("executorch",)), ("model.pt2", ("executorch",))):
        with pytest.raises(InvalidInput, match="is one file"):
            export(tiny, tmp_path / out, Limits(max_macs=1e9), ExportOptions(formats))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["litert", "coreml"])
def test_what_is_made_elsewhere_is_said(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"--format {name} is not written here: export a bundle"):
        ExportOptions((name,))  # type: ignore[arg-type]


def test_a_missing_package_is_said(tiny: fedfeast.Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "executorch", None)
    with pytest.raises(InvalidInput, match=r"needs the executorch package: pip install 'fedfeast\[executorch\]'"):
        export(tiny, tmp_path / "model.pte", Limits(max_macs=1e9))
    assert list(tmp_path.iterdir()) == []
