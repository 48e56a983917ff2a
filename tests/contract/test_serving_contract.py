"""What every method's run must keep when its networks leave the building."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import fedfeast
from fedfeast.evaluation import recalibrate
from fedfeast.methods import METHODS
from fedfeast.networks.normalisation import ByStatistics
from fedfeast.serving.choice import spread_points
from fedfeast.serving.extraction import Extractor
from fedfeast.serving.families.standalone import load
from fedfeast.serving.latency import measure_run

SHORT = {"training.rounds": 2, "training.clients_per_round": 3, "evaluation.every_rounds": 1}
OPTIONS: dict[str, dict[str, Any]] = {"fiarse": {"method.num_points": 5}}
RUNGS = 3
LOAD = """
import sys
for name in ("fedfeast", "safetensors", "numpy", "onnx"): sys.modules[name] = None
from pathlib import Path
import torch
for folder in map(Path, sys.argv[1:]):
    sys.path.insert(0, str(folder))
    from model import load, read_weights
    samples = read_weights(folder / "samples.safetensors")
    with torch.no_grad(): assert torch.allclose(load(folder)(samples["images"]), samples["logits"], atol=1e-4), folder
    del sys.path[0], sys.modules["model"]
"""
every_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs and ladders of this module lie."""
    return tmp_path_factory.mktemp("runs")


@cache
def trained(folder: Path, method: str) -> fedfeast.Run:
    settings = {**SHORT, "method.name": method, **OPTIONS.get(method, {})}
    return fedfeast.train("digits", out=folder / method, settings=settings)


@cache
def exported(folder: Path, method: str) -> dict[str, Any]:
    return fedfeast.export_ladder(trained(folder, method), folder / f"{method}-models", RUNGS)


@every_method
def test_an_exported_network_is_the_runs_own(folder: Path, method: str) -> None:
    run, index, models = trained(folder, method), exported(folder, method), folder / f"{method}-models"
    evaluator, best = run.federation.test, run.best()
    pixels = evaluator.test.inputs[:100]
    scaled = load(models).normalise(pixels)
    curve = {point.name: point for point in run.curve.points}
    points = spread_points(run.federation.method.operating_points(), RUNGS)
    for point, rung in zip(points, index["rungs"], strict=True):
        measured = curve[point.name]
        assert (rung["macs"], rung["parameters"]) == (measured.macs, measured.parameters)
        assert rung["test_accuracy"] == measured.accuracy
        deployed = run.federation.method.deploy(best.flat, point)
        statistics = ByStatistics(recalibrate(deployed, evaluator.calibration, evaluator.normalisation))
        with torch.no_grad():
            expected, logits = deployed(scaled, statistics), load(models / rung["folder"])(pixels)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    results = fedfeast.verify(models)
    assert all(result["largest_differences"]["model.onnx"] < 1e-4 for result in results)


def test_bundles_of_every_method_need_torch_alone(folder: Path) -> None:
    bundles = [folder / f"{method}-models" / exported(folder, method)["rungs"][0]["folder"] for method in METHODS]
    command = [sys.executable, "-W", "ignore", "-c", LOAD, *map(str, bundles)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_masked_network_says_what_counts(folder: Path) -> None:
    models = folder / "fiarse-models"
    bundles = [models / rung["folder"] for rung in exported(folder, "fiarse")["rungs"]]
    *masked, whole = (json.loads((bundle / "manifest.json").read_text()) for bundle in bundles)
    assert whole["masked"] is None
    for manifest, bundle in zip(masked, bundles, strict=False):
        assert manifest["masked"]["dense"] == {"macs": whole["macs"], "parameters": whole["parameters"]}
        assert manifest["bytes"] == whole["bytes"]
        kept = 0
        for name, tensor in load(bundle).network.named_parameters():
            kept += tensor.numel() if "norm" in name else int(tensor.count_nonzero())
        assert manifest["parameters"] == kept


@every_method
def test_latencies_stand_beside_accuracies(folder: Path, method: str) -> None:
    run = trained(folder, method)
    rows = measure_run(Extractor(run.folder.path), threads=1, repeats=2)["points"]
    assert [row["accuracy"] for row in rows] == [point.accuracy for point in run.curve.points]
    assert all(row["median_ms"] > 0 for row in rows)
