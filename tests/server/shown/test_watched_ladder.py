"""A ladder is served as a run is, without the run: its networks, its figures, and nothing that it does not know."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image
from starlette.types import ASGIApp

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.own_code import HOME_VARIABLE
from fedfeast.server.api import build_app
from fedfeast.server.collection import Collection
from fedfeast.server.shown.ladder_bundles import data_facts_of
from fedfeast.serving.exporting import ExportOptions
from fedfeast.serving.ladder import export_ladder
from fedfeast.serving.manifest import write_manifest

ClientOf = Callable[[ASGIApp], Any]


@pytest.fixture(scope="module")
def ladders(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One with ONNX files that take pixels, one whose files take normalised numbers, one with rounded weights alone."""
    folder = tmp_path_factory.mktemp("ladders")
    options = {
        "pixels": ExportOptions(),
        "normalised": ExportOptions(takes_pixels=False),
        "rounded": ExportOptions(formats=("safetensors",), float16=True, drawn_samples=True),
    }
    for name, one in options.items():
        export_ladder(trained, folder / name, 3, one)
    return {name: folder / name for name in options}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def digit(tmp_path: Path) -> bytes:
    pixels = np.random.default_rng(3).integers(0, 256, (8, 8), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "digit.png")
    return (tmp_path / "digit.png").read_bytes()


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_ladder_tells_what_it_knows(client_of: ClientOf, ladders: dict[str, Path], trained: Path) -> None:
    client = client_of(build_app(Collection([ladders["pixels"]])))
    about = client.get("/api/run").json()
    assert (about["name"], about["state"], about["method"], about["data"]) == ("pixels", "ladder", "feast", "digits")
    assert about["images"] == {"channels": 1, "side": 8, "classes": 10}
    assert about["clients"] is None
    variants = client.get("/api/variants").json()["variants"]
    recorded = {point.name: point.value for point in fedfeast.Run.open(trained).curve.points}
    assert len(variants) == 3
    assert {one["name"]: one["test_value"] for one in variants}.items() <= recorded.items()
    assert all(one["validation_value"] is not None for one in variants)
    assert client.get("/api/history").json()["rounds"] == []
    assert client.get("/api/fairness").json()["deciles"] == []
    fleet = client.get("/api/fleet")
    assert (fleet.status_code, fleet.json()["detail"]) == (404, "pixels is a ladder, which has no clients.")


def test_the_largest_affordable_rung_is_handed_out_as_it_lies_there(
    client_of: ClientOf, ladders: dict[str, Path]
) -> None:
    client = client_of(build_app(Collection([ladders["pixels"]])))
    variants = client.get("/api/variants").json()["variants"]
    chosen = client.get("/api/choose", params={"max_macs": variants[1]["macs"] + 1}).json()["variant"]
    assert chosen == variants[1]
    rung = next(ladders["pixels"].glob("02-*"))
    assert client.get(chosen["onnx"]).content == (rung / "model.onnx").read_bytes()
    assert client.get(chosen["safetensors"]).content == (rung / "weights.safetensors").read_bytes()
    assert client.get("/api/choose", params={"max_macs": 1}).status_code == 404
    measured = client.get("/api/choose", params={"max_latency_ms": 1e5}).json()["variant"]
    assert 0 < measured["latency_ms"] < 1e5
    assert {**measured, "latency_ms": None} == variants[2]


@pytest.mark.parametrize(("kind", "difference"), [("normalised", 1e-5), ("rounded", 1e-2)])
def test_networks_without_a_file_for_pixels_get_one_outside_the_ladder(
    client_of: ClientOf, ladders: dict[str, Path], home: Path, digit: bytes, kind: str, difference: float
) -> None:
    before = files_of(ladders[kind])
    answers = {}
    for name in ("pixels", kind):
        client = client_of(build_app(Collection([ladders[name]])))
        variant = client.get("/api/variants").json()["variants"][2]
        answer = client.ask("POST", f"/api/predict/{variant['id']}", content=digit)
        answers[name] = {one["name"]: one["probability"] for one in answer.json()["classes"]}
    assert answers[kind] == pytest.approx(answers["pixels"], abs=difference)
    assert files_of(ladders[kind]) == before
    (built,) = home.glob("ladders/ladder-*/03-*")
    said = {one.key: one.value for one in onnx.load(built / "model.onnx").metadata_props}
    assert json.loads(said["class_names"]) == list("0123456789")  # which the visitor's browser shows


def test_a_damaged_rung_is_not_handed_out(client_of: ClientOf, ladders: dict[str, Path], tmp_path: Path) -> None:
    copytree(ladders["pixels"], tmp_path / "copy")
    client = client_of(build_app(Collection([tmp_path / "copy"])))
    variant = client.get("/api/variants").json()["variants"][2]
    weights = next((tmp_path / "copy").glob("03-*")) / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    answer = client.get(variant["safetensors"])
    assert answer.status_code == 409
    assert "does not match its hash" in answer.json()["detail"]
    assert str(tmp_path) not in answer.json()["detail"]


def test_a_ladder_that_is_deleted_and_another_one_in_its_place(
    client_of: ClientOf, ladders: dict[str, Path], trained: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    copytree(ladders["pixels"], place)
    collection = Collection([place])
    client = client_of(build_app(collection))
    before = client.get("/api/variants").json()["variants"]
    rmtree(place)
    assert client.get("/api/choose", params={"max_macs": 1e9}).status_code == 410
    assert client.get(before[0]["onnx"]).status_code == 410
    collection.runs["place"].refresh()
    assert client.get("/api/run").json()["state"] == "gone"
    export_ladder(trained, place, 2)
    collection.runs["place"].refresh()
    after = client.get("/api/variants").json()["variants"]
    assert (client.get("/api/run").json()["state"], len(after)) == ("ladder", 2)
    assert client.get(after[1]["onnx"]).status_code == 200


def test_a_ladder_that_is_damaged_while_it_is_served(ladders: dict[str, Path], tmp_path: Path) -> None:
    copytree(ladders["pixels"], tmp_path / "copy")
    collection = Collection([tmp_path / "copy"])
    (tmp_path / "copy" / "ladder.json").write_text("{}")
    collection.runs["copy"].refresh()
    seen = collection.runs["copy"].seen
    assert (seen.state, seen.offer, seen.variants) == ("ladder", None, ())
    assert "is damaged" in seen.note
    assert str(tmp_path) not in seen.note


def test_what_is_no_ladder_is_refused(ladders: dict[str, Path], tmp_path: Path) -> None:
    copytree(ladders["pixels"], tmp_path / "copy")
    index = json.loads((tmp_path / "copy" / "ladder.json").read_text())
    (tmp_path / "copy" / "ladder.json").write_text(json.dumps({**index, "rungs": index["rungs"][:1]}))
    with pytest.raises(InvalidInput, match="was changed after it was written"):
        Collection([tmp_path / "copy"])


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index.pop("run"),
        lambda index: index["run"].pop("data"),
        lambda index: index["run"].update(best_round="many"),
        lambda index: index["rungs"][1].pop("parameters"),
        lambda index: index["rungs"][0].pop("test_accuracy"),
        lambda index: index["rungs"][0].update(task="of my own", metric="joy"),
        lambda index: index["rungs"][0].update(folder=".."),
    ],
)
def test_an_index_of_somebody_elses_making_is_one_sentence(
    ladders: dict[str, Path], tmp_path: Path, change: Callable[[Any], object]
) -> None:
    copytree(ladders["pixels"], tmp_path / "copy")
    index = json.loads((tmp_path / "copy" / "ladder.json").read_text())
    change(index)
    content = {key: value for key, value in index.items() if key not in ("sha256", "seal")}
    write_manifest(tmp_path / "copy" / "ladder.json", content, index["sha256"])
    with pytest.raises(
        InvalidInput, match=r"ladder\.json (does not describe its|lists no) .*: export the ladder again"
    ):
        Collection([tmp_path / "copy"])


def test_a_run_and_a_ladder_are_shown_side_by_side(
    client_of: ClientOf, ladders: dict[str, Path], trained: Path
) -> None:
    client = client_of(build_app(Collection([trained, ladders["pixels"]])))
    assert client.get("/api/run").json()["runs"] == ["digits", "pixels"]
    ids = [
        {one["id"] for one in client.get("/api/variants", params={"run": run}).json()["variants"]}
        for run in ("digits", "pixels")
    ]
    assert not ids[0] & ids[1]


@pytest.mark.parametrize(
    ("network", "more", "expected"),
    [
        ({"image_channels": 3, "image_size": 32, "mean": [0.5]}, {}, ("images", (3, 32, 32), "classification")),
        (
            {"input": {"shape": [6, 128], "dtype": "float32"}, "mean": [0.0]},
            {},
            ("numbers", (6, 128), "classification"),
        ),
        (
            {"input": {"shape": [80], "dtype": "int64"}},
            {"task": "next-token", "vocabulary": ["a", "b"]},
            ("tokens", (80,), "next-token"),
        ),
    ],
)
def test_examples_as_a_manifest_has_them(network: Any, more: Any, expected: tuple[Any, ...]) -> None:
    facts = data_facts_of({"network": network, "class_names": ["a", "b"], **more})
    assert (facts.kind, facts.input_shape, facts.task) == expected
    assert facts.classes == 2
