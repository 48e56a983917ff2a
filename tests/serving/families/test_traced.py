"""A method that brings a network class of its own: its sizes leave the building like all others."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fedfeast
from fedfeast.data import normalise
from fedfeast.evaluation import recalibrate
from fedfeast.networks.normalisation import ByStatistics
from fedfeast.runs.contract.checking import check_method
from fedfeast.serving.choice import Limits
from fedfeast.serving.exporting import ExportOptions
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.families.standalone import read_weights
from fedfeast.serving.latency import measure_run

CODE = '''
from dataclasses import dataclass
import torch
import torch.nn.functional as F
from fedfeast.federation import OperatingPoint
from fedfeast.methods.tiers import Tier, TieredMethod
from fedfeast.networks import Layout


@dataclass(frozen=True)
class Stripes:
    """A convolution, a norm and a head; an architecture is its number of channels."""

    whole: int = 12
    draws = False

    @property
    def layout(self):
        return Layout.of(self.shapes(self.whole))

    def shapes(self, channels):
        return {"conv": (channels, 1, 3, 3), "norm.scale": (channels,), "norm.shift": (channels,),
                "head.weight": (10, channels), "head.bias": (10,)}

    def macs(self, channels):
        return self.convolution_macs(channels) + 10 * channels

    def convolution_macs(self, channels):
        return 64 * 9 * channels

    def parameters(self, channels):
        return 9 * channels + 2 * channels + 10 * channels + 10

    def initial_weights(self, generator):
        drawn = torch.from_numpy(generator.normal(0, 0.3, self.layout.size)).float()
        self.layout.views(drawn)["norm.scale"].fill_(1)
        return drawn

    def forward(self, weights, inputs, architecture, layers):
        features = F.conv2d(inputs, weights["conv"], padding=1)
        features = F.relu(layers("norm", features, weights["norm.scale"], weights["norm.shift"]))
        return (F.linear(features.mean(dim=(2, 3)), weights["head.weight"], weights["head.bias"]),)


@dataclass(frozen=True)
class Striped(TieredMethod):
    network: Stripes
    weighting: str = "samples"

    @classmethod
    def build(cls, parts, **options):
        return cls(Stripes(), **options)

    def levels_in_order(self):
        return [Tier(channels, channels) for channels in (3, 6, 12)]
'''
SHORT = {
    **{"training.rounds": 2, "training.clients_per_round": 3, "evaluation.every_rounds": 1},
    **{"population.least_macs": 2e3, "population.greatest_macs": 1e4, "population.cap_macs": 1e4},
}
LOAD = """
import sys
for name in ("fedfeast", "safetensors", "onnx"): sys.modules[name] = None
sys.path.insert(0, sys.argv[1])
import torch
from model import load, read_weights
samples = read_weights(__import__("pathlib").Path(sys.argv[1]) / "samples.safetensors")
with torch.no_grad(): assert torch.allclose(load(sys.argv[1])(samples["images"]), samples["logits"], atol=1e-4)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedfeast.Run:
    """A run of the method above."""
    folder = tmp_path_factory.mktemp("traced")
    (folder / "striped.py").write_text(CODE)
    settings = {**SHORT, "method.name": f"{folder / 'striped.py'}:Striped"}
    return fedfeast.train("digits", folder / "run", settings)


def test_the_bundle_is_the_runs_own_network_and_needs_torch_alone(run: fedfeast.Run, tmp_path: Path) -> None:
    manifest = fedfeast.extract(run, tmp_path / "bundle", Limits(max_macs=5e3))
    assert (manifest["macs"], manifest["parameters"]) == (6 * (64 * 9 + 10), 6 * 21 + 10)
    assert (manifest["network"]["family"], manifest["network"]["type"]) == ("traced", "Stripes")
    evaluator, method = run.federation.test, run.federation.method
    deployed = method.deploy(run.best().flat, method.operating_points()[1])
    statistics = ByStatistics(recalibrate(deployed, evaluator.calibration, evaluator.normalisation))
    model, pixels = fedfeast.load_bundle(tmp_path / "bundle"), evaluator.test.inputs[:50]
    with torch.no_grad():
        expected = deployed(normalise(pixels, evaluator.normalisation, torch.float32), statistics)
        torch.testing.assert_close(model(pixels), expected, rtol=1e-4, atol=1e-4)
    assert "the method's own `Stripes`" in (tmp_path / "bundle" / "README.md").read_text()
    assert not (tmp_path / "bundle" / "network.py").exists(), "nothing of the user's code"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", LOAD, tmp_path / "bundle"], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_every_size_runs_in_onnxruntime(run: fedfeast.Run, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    models = tmp_path / "models"
    rungs = fedfeast.export_ladder(run, models, 3)["rungs"]
    assert [rung["macs"] for rung in rungs] == [channels * 586 for channels in (3, 6, 12)]
    pixels = run.federation.test.test.inputs[:20]
    for rung in rungs:
        session = onnxruntime.InferenceSession(str(models / rung["folder"] / "model.onnx"))
        (logits,) = session.run(None, {session.get_inputs()[0].name: pixels.numpy()})
        with torch.no_grad():
            expected = fedfeast.load_bundle(models / rung["folder"])(pixels).numpy()
        np.testing.assert_allclose(logits, expected, atol=1e-4)
    assert all(one["largest_differences"]["model.onnx"] < 1e-4 for one in fedfeast.verify(models))
    int8 = fedfeast.export(run, tmp_path / "small.onnx", Limits(max_macs=2e3), ExportOptions(("int8",)))
    assert "accuracy_cost" in int8["exports"]["small.onnx"]


def test_a_rounded_bundle_holds_a_program_of_the_rounded_weights(run: fedfeast.Run, tmp_path: Path) -> None:
    options = ExportOptions(("safetensors",), float16=True, drawn_samples=True)
    manifest = fedfeast.export(run, tmp_path / "bundle", Limits(max_macs=5e3), options)
    tensors = read_weights(tmp_path / "bundle" / "weights.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    state = fedfeast.load_bundle(tmp_path / "bundle").state_dict().values()
    for name, tensor in tensors.items():
        assert any(torch.equal(one, tensor.float()) for one in state if one.shape == tensor.shape), name
    assert manifest["rounding_difference"] > 0
    assert fedfeast.verify(tmp_path / "bundle")[0]["largest_differences"] == {"torch": pytest.approx(0, abs=1e-5)}


def test_latencies_need_no_data(run: fedfeast.Run) -> None:
    rows = measure_run(Extractor(run.folder.path), threads=1, repeats=2)["points"]
    assert [row["macs"] for row in rows] == [channels * 586 for channels in (3, 6, 12)]
    assert all(row["median_ms"] > 0 for row in rows)


def test_the_method_keeps_every_rule(run: fedfeast.Run) -> None:
    report = check_method(run.recipe.method_name, settings=SHORT)
    assert report.passed, report.violated
