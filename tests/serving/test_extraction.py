import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.serving.bundle import load_bundle
from fedfeast.serving.extraction import Limits, describe_extraction, extract

SHORT = {
    "training.rounds": 2,
    "training.clients_per_round": 3,
    "evaluation.every_rounds": 1,
    "population.greatest_macs": 2e6,  # nobody trains beyond the sixth variant
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedfeast.Run:
    return fedfeast.train("digits", out=tmp_path_factory.mktemp("runs") / "run", settings=SHORT)


def test_the_largest_affordable_cached_variant(run: fedfeast.Run, tmp_path: Path) -> None:
    manifest = extract(run, tmp_path / "bundle", Limits(max_macs=600e3))
    assert (manifest["macs"], manifest["parameters"], manifest["cached"]) == (545_920, 48_578, True)
    assert manifest["untrained_share"] == 0
    measured = next(point for point in run.curve.points if point.macs == 545_920)
    assert manifest["test_accuracy"] == measured.accuracy
    assert describe_extraction(manifest).startswith("545.9k MACs, 48,578 parameters")


def test_limits_on_parameters_and_on_both(run: fedfeast.Run, tmp_path: Path) -> None:
    assert extract(run, tmp_path / "one", Limits(max_parameters=40_000))["parameters"] == 38_898
    assert extract(run, tmp_path / "two", Limits(300e3, 40_000))["parameters"] == 15_954


def test_a_searched_network_uses_the_budget_and_trained_weights(run: fedfeast.Run, tmp_path: Path) -> None:
    manifest = extract(run, tmp_path / "bundle", Limits(max_macs=700e3), search=True)
    assert 0.9 * 700e3 <= manifest["macs"] <= 700e3
    assert not manifest["cached"]
    assert manifest["untrained_share"] <= 0.01


def test_untrained_weights_are_counted(run: fedfeast.Run, tmp_path: Path) -> None:
    manifest = extract(run, tmp_path / "bundle", Limits(max_macs=5e6))
    assert manifest["macs"] == 4_974_848
    assert manifest["untrained_share"] > 0.3, "no client affords more than 2M MACs"


def test_only_what_a_method_serves_and_trains_counts(tmp_path: Path) -> None:
    settings = {**SHORT, "method": {"name": "fedavg", "max_macs": 1.2e6}}
    fedavg = fedfeast.train("digits", out=tmp_path / "run", settings=settings)
    with pytest.raises(InvalidInput, match="the smallest has 1154496 MACs"):
        extract(fedavg, tmp_path / "small", Limits(max_macs=600e3))
    served = extract(fedavg, tmp_path / "served", Limits(max_macs=5e6))
    assert (served["macs"], served["cached"], served["untrained_share"]) == (1_154_496, True, 0)
    wider = extract(fedavg, tmp_path / "wider", Limits(max_macs=5e6), search=True)
    assert wider["untrained_share"] > 0.01


def test_a_bundle_loads_with_torch_alone(run: fedfeast.Run, tmp_path: Path) -> None:
    extract(run, tmp_path / "bundle", Limits(max_macs=400e3))
    images = run.federation.test.test.images[:50]
    torch.save(images, tmp_path / "images.pt")
    code = (
        "import sys\n"
        "for name in ('fedfeast', 'safetensors', 'numpy', 'pydantic', 'sklearn'): sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(tmp_path / 'bundle')!r})\n"
        "import torch, json\n"
        "from model import load\n"
        f"model = load({str(tmp_path / 'bundle')!r})\n"
        f"with torch.no_grad(): logits = model(torch.load({str(tmp_path / 'images.pt')!r}))\n"
        "print(json.dumps(logits.argmax(1).tolist()))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        expected = load_bundle(tmp_path / "bundle")(images).argmax(1).tolist()
    assert json.loads(done.stdout) == expected


def test_the_loaded_network_has_the_manifests_accuracy(run: fedfeast.Run, tmp_path: Path) -> None:
    manifest = extract(run, tmp_path / "bundle", Limits(max_macs=400e3))
    test = run.federation.test.test
    with torch.no_grad():
        right = load_bundle(tmp_path / "bundle")(test.images).argmax(1) == test.labels
    assert np.isclose(float(right.double().mean()), manifest["test_accuracy"], atol=2 / len(test))


def test_what_cannot_be_met_is_said(run: fedfeast.Run, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no cached variant fits 1000 MACs: the smallest has 128320 MACs"):
        extract(run, tmp_path / "bundle", Limits(max_macs=1000))
    with pytest.raises(InvalidInput, match="128320"):
        extract(run, tmp_path / "bundle", Limits(max_macs=1000), search=True)
    with pytest.raises(InvalidInput, match="no limit was given"):
        Limits()
    with pytest.raises(InvalidInput, match="--max-macs 0: give a positive number"):
        Limits(max_macs=0)
    assert not (tmp_path / "bundle").exists()
