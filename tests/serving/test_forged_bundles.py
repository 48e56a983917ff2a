"""Bundles of a forger who writes every hash anew: verify says what is wrong in a sentence, and soon."""

import json
import time
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.randomness import named_generator
from fedfeast.serving.bundle import load_bundle
from fedfeast.serving.choice import Limits
from fedfeast.serving.exporting import export
from fedfeast.serving.ladder import Ladder, export_ladder
from fedfeast.serving.manifest import seal_of
from fedfeast.serving.verification import verify
from fedfeast.whole_files import sha256_of

ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**9, 10**400, 1.5, float("nan"), "", "x", "\x00", "../../etc/passwd", "/dev/zero", [], {}),
    *([[]], {"a": None}, [None], ["x"], "x" * 5000),
)
FORGERIES = 100


@pytest.fixture(scope="module")
def sound(run: fedfeast.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with an ONNX file, and a ladder of one."""
    folder = tmp_path_factory.mktemp("sound")
    export(run, folder / "bundle", Limits(max_macs=200e3))
    export_ladder(run, folder / "ladder", [200e3])
    return folder


def reseal(path: Path, manifest: dict[str, Any], hashes: dict[str, str] | None = None) -> None:
    """Write a manifest whose seal and hashes hold."""
    if hashes is None and isinstance(manifest.get("sha256"), dict):
        there = [name for name in manifest["sha256"] if "\x00" not in name and (path.parent / name).is_file()]
        hashes = {**manifest["sha256"], **{name: sha256_of(path.parent / name) for name in there}}
    forged = {**manifest, **({} if hashes is None else {"sha256": hashes})}
    path.write_text(json.dumps({**forged, "seal": seal_of(forged)}))


def with_a_value_exchanged(content: Any, generator: np.random.Generator) -> Any:
    """Exchange or remove one value inside."""
    ways: list[tuple[Any, Any]] = []

    def collect(inside: Any) -> None:
        for key, value in inside.items() if isinstance(inside, dict) else enumerate(inside):
            ways.append((inside, key))
            if isinstance(value, dict | list):
                collect(value)

    collect(content)
    inside, key = ways[generator.integers(len(ways))]
    if generator.integers(5):
        inside[key] = ODD[generator.integers(len(ODD))]
    else:
        del inside[key]
    return content


def forge(folder: Path, number: int) -> Path:
    """Change one thing in a bundle or a ladder; return what to verify."""
    generator = named_generator(number, "forged bundle")
    kind, bundle = generator.integers(10), folder / "bundle"
    if kind < 5:
        changed = with_a_value_exchanged(json.loads((bundle / "manifest.json").read_text()), generator)
        reseal(bundle / "manifest.json", changed)
        return bundle
    if kind < 6:
        index = folder / "ladder" / "ladder.json"
        reseal(index, with_a_value_exchanged(json.loads(index.read_text()), generator))
        return folder / "ladder"
    name = ("weights.safetensors", "samples.safetensors", "model.onnx")[kind % 3]
    content = (bundle / name).read_bytes()
    if name != "model.onnx" and kind < 9:
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.dumps(with_a_value_exchanged(json.loads(content[8:start]), generator)).encode()
        content = len(header).to_bytes(8, "little") + header + content[start:]
    else:
        changed_bytes = bytearray(content)
        for _ in range(generator.integers(1, 20)):
            changed_bytes[generator.integers(min(len(content), 2000))] = generator.integers(256)
        content = bytes(changed_bytes)
    (bundle / name).write_bytes(content)
    reseal(bundle / "manifest.json", json.loads((bundle / "manifest.json").read_text()))
    return bundle


def test_forgeries_are_refused_in_a_sentence_or_do_no_harm(sound: Path, tmp_path: Path) -> None:
    sentences: list[str] = []
    for number in range(FORGERIES):
        rmtree(tmp_path / "forged", ignore_errors=True)
        copytree(sound, tmp_path / "forged")
        path = forge(tmp_path / "forged", number)
        started = time.perf_counter()
        try:
            verify(path)
        except InvalidInput as error:
            sentences.append(str(error))
        assert time.perf_counter() - started < 10
    assert 40 < len(sentences) < FORGERIES
    assert all(len(sentence.splitlines()) == 1 and len(sentence) < 8000 for sentence in sentences)


@pytest.fixture
def forged(sound: Path, tmp_path: Path) -> Path:
    copytree(sound, tmp_path / "forged")
    return tmp_path / "forged"


def test_a_manifest_without_hashes_vouches_for_nothing(forged: Path) -> None:
    path = forged / "bundle" / "manifest.json"
    manifest = json.loads(path.read_text())
    reseal(path, manifest, {})
    with pytest.raises(InvalidInput, match=r"has no hash of weights.safetensors, and so vouches for nothing"):
        verify(forged / "bundle")
    with pytest.raises(InvalidInput, match="vouches for nothing"):
        load_bundle(forged / "bundle")
    others = {name: value for name, value in manifest["sha256"].items() if name != "model.onnx"}
    reseal(path, manifest, others)
    with pytest.raises(InvalidInput, match=r"has no hash of model.onnx"):
        verify(forged / "bundle")
    index = forged / "ladder" / "ladder.json"
    reseal(index, json.loads(index.read_text()), {})
    with pytest.raises(InvalidInput, match=r"has no hash of model.py"):
        Ladder.open(forged / "ladder")


@pytest.mark.parametrize(("key", "value"), [("blocks", 10**9), ("channels", 10**6), ("middle", 10**6), ("blocks", "x")])
def test_a_table_larger_than_the_weights_takes_neither_time_nor_memory(forged: Path, key: str, value: Any) -> None:
    path = forged / "bundle" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["network"]["stages"][0][key] = value
    reseal(path, manifest)
    started = time.perf_counter()
    with pytest.raises(InvalidInput, match="does not fit its manifest"):
        verify(forged / "bundle")
    assert time.perf_counter() - started < 5


def test_a_network_that_loops_is_not_run(forged: Path) -> None:
    model, path = onnx.load(forged / "bundle" / "model.onnx"), forged / "bundle" / "manifest.json"
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"])],
        "for ever",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go", 9, [])],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, [])],
    )
    model.graph.initializer.append(helper.make_tensor("true", TensorProto.BOOL, [], [True]))
    model.graph.node.append(helper.make_node("Loop", ["", "true"], [], body=body))
    onnx.save(model, forged / "bundle" / "model.onnx")
    reseal(path, json.loads(path.read_text()))
    with pytest.raises(InvalidInput, match=r"model.onnx holds a branch or a loop \(Loop\)"):
        verify(forged / "bundle")


def test_a_network_that_reads_other_files_is_not_opened(forged: Path) -> None:
    model, path = onnx.load(forged / "bundle" / "model.onnx"), forged / "bundle" / "manifest.json"
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../secret"
    (forged / "bundle" / "model.onnx").write_bytes(model.SerializeToString())
    reseal(path, json.loads(path.read_text()))
    with pytest.raises(InvalidInput, match=r"model.onnx holds weights of another file"):
        verify(forged / "bundle")


def test_a_ladder_leads_to_its_own_bundles_alone(forged: Path) -> None:
    index = forged / "ladder" / "ladder.json"
    manifest = json.loads(index.read_text())
    manifest["rungs"][0]["folder"] = "../bundle"
    reseal(index, manifest)
    with pytest.raises(InvalidInput, match=r"ladder.json lists no bundles"):
        verify(forged / "ladder")
