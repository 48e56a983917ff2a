"""A user's own network from fifteen lines to a device: trained, extracted, exported, served."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from anyio.from_thread import start_blocking_portal
from safetensors.torch import load_file

import fedfeast
from fedfeast.data.reading.decoded import decoded_arrays
from fedfeast.data.reading.prepared import write_prepared
from fedfeast.errors import InvalidInput
from fedfeast.server.api import build_app
from fedfeast.server.collection import Collection
from fedfeast.serving.onnx.session import Session

CNN = """
from torch import nn
from fedfeast.networks.built import elastic


class Cnn(nn.Module):
    def __init__(self, width, depth, classes):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, width, 3, 2, 1), nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        features = self.norm(self.stem(images)).relu()
        for block in self.blocks:
            features = features + block(features).relu()
        return self.head(features.mean(dim=(2, 3)))


@elastic(width=[4, 8], depth=[1, 2])
def cnn(width, depth, *, classes):
    return Cnn(width, depth, classes)
"""
TOKENS = """
from torch import nn
from fedfeast.networks.built import elastic


class Bag(nn.Module):
    def __init__(self, hidden, vocabulary, classes):
        super().__init__()
        self.embedding, self.up = nn.Embedding(vocabulary, 6), nn.Linear(6, hidden)
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(hidden, classes)

    def forward(self, tokens):
        return self.head(self.up(self.norm(self.embedding(tokens).mean(dim=1))).relu())


@elastic(hidden=[4, 8, 16])
def bag(hidden, *, vocabulary, classes):
    return Bag(hidden, vocabulary, classes)
"""
SHORT: dict[str, Any] = {
    "training.rounds": 2,
    "training.clients_per_round": 3,
    "evaluation.every_rounds": 2,
    "population.least_macs": 1e4,
    "population.greatest_macs": 2e5,
    "variants.cache": "members",
    "variants.num_targets": 3,
    "engine.threads": 1,
}


def train(source: str, name: str, folder: Path, settings: dict[str, Any]) -> fedfeast.Run:
    (folder / "mine.py").write_text(source)
    builder = {"network.builder": f"{folder / 'mine.py'}:{name}"}
    return fedfeast.train("digits", folder / "run", {**SHORT, **builder, **settings})


def load_alone(folder: Path) -> torch.Tensor:
    """Predict a bundle's samples in a process that has torch and nothing of the package or the user."""
    program = (
        "import sys; sys.modules['fedfeast'] = None; sys.path.insert(0, sys.argv[1])\n"
        "from model import load, read_weights; from pathlib import Path; import torch\n"
        "samples = read_weights(Path(sys.argv[1]) / 'samples.safetensors')\n"
        "outputs = load(sys.argv[1])(samples['images'])\n"
        "print(float((outputs - samples['logits']).abs().max()))"
    )
    command = [sys.executable, "-W", "error", "-c", program, str(folder)]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert answer.returncode == 0, answer.stderr
    return torch.tensor(float(answer.stdout))


def ask_server(run: Path, example: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Serve a run; return its state, what the largest network predicts and that network's file."""
    app = build_app(Collection([run]))

    async def ask() -> tuple[dict[str, Any], dict[str, Any], bytes]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
            state = (await client.get("/api/run")).json()
            variant = (await client.get("/api/choose?max_macs=1e9")).json()["variant"]
            file = (await client.get(variant["onnx"])).content
            prediction = await client.post(f"/api/predict/{variant['id']}", content=example)
            return state, prediction.json(), file

    # In a thread of its own: a browser's session of another test may keep this thread's loop.
    with start_blocking_portal() as portal:
        told: tuple[dict[str, Any], dict[str, Any], bytes] = portal.call(ask)
    return told


def test_an_own_cnn_goes_from_fifteen_lines_to_a_device(tmp_path: Path) -> None:
    run = train(CNN, "cnn", tmp_path, {})
    path, limits = run.folder.path, fedfeast.Limits(max_macs=1e9)
    manifest = fedfeast.export(run, tmp_path / "bundle", limits)
    assert manifest["architecture"] == {"width": 8, "depth": 2}
    assert manifest["network"]["input"] == {"kind": "images", "shape": [1, 8, 8], "dtype": "uint8"}
    assert manifest["test_accuracy"] == run.curve.points[-1].accuracy
    test = run.federation.test.test
    state, prediction, served = ask_server(path, _png(test.inputs[0]))
    assert state["inputs"] == {"kind": "images", "shape": [1, 8, 8], "task": "classification"}

    (tmp_path / "mine.py").unlink()
    model = fedfeast.load_bundle(tmp_path / "bundle")
    with torch.no_grad():
        logits = model(test.inputs)
    right = float((logits.argmax(dim=1) == test.labels).double().mean())
    assert right == pytest.approx(manifest["test_accuracy"], abs=1.5 / len(test))
    assert model(test.inputs[:1]).shape == (1, 10)
    torch.testing.assert_close(Session(tmp_path / "bundle" / "model.onnx")(test.inputs), logits, rtol=0, atol=1e-4)
    (tmp_path / "served.onnx").write_bytes(served)
    torch.testing.assert_close(Session(tmp_path / "served.onnx")(test.inputs), logits, rtol=0, atol=1e-4)
    assert prediction["classes"][0]["name"] == str(int(logits[0].argmax()))
    assert float(load_alone(tmp_path / "bundle")) < 1e-5
    (checked,) = fedfeast.verify(tmp_path / "bundle")
    assert set(checked["largest_differences"]) == {"torch", "model.onnx"}
    for file in (tmp_path / "bundle").rglob("*"):
        content = file.read_bytes()
        assert str(tmp_path).encode() not in content, f"{file.name} names a file of this machine"
        assert b"features.mean" not in content, f"{file.name} quotes the user's code"
    with pytest.raises(
        ValueError, match=r"images have the shape \(1, 1, 9, 9\): this network takes \(batch, 1, 8, 8\)"
    ):
        model(torch.zeros(1, 1, 9, 9, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"inputs are torch.float32: this network takes torch.uint8"):
        model(torch.zeros(1, 1, 8, 8))


def test_a_bundle_of_an_own_network_starts_the_next_training(tmp_path: Path) -> None:
    run = train(CNN, "cnn", tmp_path, {})
    fedfeast.extract(run, tmp_path / "bundle", fedfeast.Limits(max_macs=2e4))
    (tmp_path / "next").mkdir()
    following = train(CNN, "cnn", tmp_path / "next", {"network.weights": str(tmp_path / "bundle"), "seed": 1})
    views = following.federation.method.network.layout.views(following.federation.initial_weights())
    for name, tensor in load_file(tmp_path / "bundle" / "weights.safetensors").items():
        if name in views:
            held = views[name][tuple(slice(0, length) for length in tensor.shape)]
            torch.testing.assert_close(held, tensor, rtol=0, atol=0)


def test_another_builder_is_refused(
    tmp_path: Path, new_process: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDFEAST_HOME", str(tmp_path / "home"))
    path = train(CNN, "cnn", tmp_path, {}).folder.path
    assert set(json.loads((path / "inputs" / "builder.json").read_text())) == {"builder", "sha256"}
    (tmp_path / "mine.py").write_text(CNN.replace(".relu()\n        for", ".sigmoid()\n        for"))
    new_process()
    with pytest.raises(InvalidInput, match=r"mine.py has changed since it was trusted: read it, then add --trust"):
        fedfeast.extract(path, tmp_path / "bundle", fedfeast.Limits(max_macs=1e9))
    fedfeast.trust(f"{tmp_path / 'mine.py'}:cnn")
    changed = r"network.builder = .*mine.py:cnn' has changed since the run in .*run began: restore its file, or"
    with pytest.raises(InvalidInput, match=changed):
        fedfeast.extract(path, tmp_path / "bundle", fedfeast.Limits(max_macs=1e9))
    with pytest.raises(InvalidInput, match=changed):
        fedfeast.evaluate(path)
    with pytest.raises(InvalidInput, match=changed):
        fedfeast.train(path / "recipe.toml", path)


@pytest.mark.usefixtures("another_machine")
def test_a_foreign_run_is_extracted_only_where_its_builder_is_trusted(
    tmp_path: Path, new_process: Callable[[], None]
) -> None:
    path = train(CNN, "cnn", tmp_path, {}).folder.path
    copytree(path, tmp_path / "foreign")
    (tmp_path / "another-home" / "trusted.json").unlink()
    new_process()
    limits = fedfeast.Limits(max_macs=1e9)
    with pytest.raises(InvalidInput, match=r"names code to run, network.builder = .* was not trusted on this machine"):
        fedfeast.extract(tmp_path / "foreign", tmp_path / "bundle", limits)
    fedfeast.trust(f"{tmp_path / 'mine.py'}:cnn")
    assert fedfeast.extract(tmp_path / "foreign", tmp_path / "bundle", limits)["network"]["builder"] == "cnn"


def test_tokens_go_the_same_way(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    splits = {}
    for split, number in (("train", 300), ("test", 60)):
        labels = np.arange(number) % 3
        tokens = (3 * generator.integers(3, size=(number, 5)) + labels[:, None]).astype(np.int16)
        splits[split] = (tokens, labels.astype(np.int64))
    decoded = decoded_arrays(("a", "b", "c"), splits, kind="tokens", vocabulary=9)
    (tmp_path / "data").mkdir()
    write_prepared(tmp_path / "data" / "letters", decoded, {"normalisation": None, "source": {}})
    settings = {
        "data.name": "letters",
        "data.folder": str(tmp_path / "data"),
        "data.validation_examples": 30,
        "data.calibration_examples": 20,
        "population.num_clients": 6,
        "population.least_macs": 60,
        "population.greatest_macs": 300,
        "partition.alpha_eff": 10.0,
        "training.batch_size": 8,
    }
    run = train(TOKENS, "bag", tmp_path, settings)
    manifest = fedfeast.export(
        run, tmp_path / "bundle", fedfeast.Limits(max_macs=1e9), fedfeast.ExportOptions(("onnx", "pt2"))
    )
    test = run.federation.test.test
    state, prediction, served = ask_server(run.folder.path, json.dumps(test.inputs[0].tolist()).encode())
    assert state["inputs"] == {"kind": "tokens", "shape": [5], "task": "classification"}
    (tmp_path / "mine.py").unlink()
    assert manifest["network"]["input"] == {"kind": "tokens", "shape": [5], "dtype": "int64"}
    assert (manifest["network"]["batch_norms"], manifest["class_names"]) == (0, ["a", "b", "c"])
    model = fedfeast.load_bundle(tmp_path / "bundle")
    with torch.no_grad():
        logits = model(test.inputs)  # int16, as they are kept
    assert float((logits.argmax(dim=1) == test.labels).double().mean()) == pytest.approx(manifest["test_accuracy"])
    assert prediction["classes"][0]["name"] == "abc"[int(logits[0].argmax())]
    for file in ((tmp_path / "bundle" / "model.onnx").read_bytes(), served):
        torch.testing.assert_close(Session(file)(test.inputs), logits, rtol=0, atol=1e-4)
    assert (tmp_path / "bundle" / "model.pt2").stat().st_size == manifest["exports"]["model.pt2"]["bytes"]
    assert "5 token ids, int64" in (tmp_path / "bundle" / "README.md").read_text()


def test_the_other_ways_out_of_a_run_take_own_networks_too(tmp_path: Path) -> None:
    run = train(CNN, "cnn", tmp_path, {})
    index = fedfeast.export_ladder(run, tmp_path / "ladder", 2, fedfeast.ExportOptions(("int8",)))
    assert [rung["macs"] for rung in index["rungs"]] == [run.curve.points[0].macs, run.curve.points[-1].macs]
    assert all("accuracy_cost" in rung["exports"]["model.int8.onnx"] for rung in index["rungs"])
    smallest = fedfeast.Ladder.open(tmp_path / "ladder").load(index["rungs"][0]["macs"])
    assert smallest(torch.zeros(3, 1, 8, 8, dtype=torch.uint8)).shape == (3, 10)
    found = fedfeast.extract(run, tmp_path / "fast", fedfeast.Limits(max_latency_ms=1e3))
    assert (found["macs"], found["latency"]["repeats"]) == (run.curve.points[-1].macs, 30)
    searched = fedfeast.extract(run, tmp_path / "searched", fedfeast.Limits(max_parameters=1000), search=True)
    assert searched["parameters"] <= 1000
    limits, normalised = fedfeast.Limits(max_macs=1e9), fedfeast.ExportOptions(("pt2",), takes_pixels=False)
    with pytest.raises(InvalidInput, match=r"--opset 17: .* know 18 to"):
        fedfeast.export(run, tmp_path / "old", limits, fedfeast.ExportOptions(opset=17))
    with pytest.raises(InvalidInput, match=r"--normalised: a bundle of an own network holds model.pt2, which"):
        fedfeast.export(run, tmp_path / "old", limits, normalised)
    assert fedfeast.export(run, tmp_path / "one.pt2", limits, normalised)["exports"]["one.pt2"]["kind"] == "pt2"


def _png(image: torch.Tensor) -> bytes:
    import io

    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(image[0].numpy()).save(content, "PNG")
    return content.getvalue()
