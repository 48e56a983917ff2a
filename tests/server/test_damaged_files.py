"""Run files are damaged in five hundred ways: whoever reads them says so, and a server goes on."""

import io
import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny import TINY

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.presentation.report import write_report
from fedfeast.randomness import named_generator
from fedfeast.runs import Run
from fedfeast.server.api import build_app
from fedfeast.server.collection import Collection
from fedfeast.server.shown.watched_run import WatchedRun

SETTINGS = {**TINY, "training.rounds": 2, "population.num_clients": 6, "training.clients_per_round": 2}
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**400, float("nan"), float("inf"), "", "x" * 300, "\x00", "nan", [], {}, [[]], {"a": None}),
    *([None], ["x"], {"name": 3}, "../../recipe.toml", "1e999"),
)
FILES = {  # and how many times each is damaged
    "summary.json": 160,
    "metrics.jsonl": 110,
    "clients.csv": 60,
    "environment.json": 40,
    "latency.json": 40,
    "recipe.toml": 40,
    "inputs/variants.cache.csv": 20,
    "checkpoints/best-000002.safetensors": 10,
    "checkpoints/round-000002.safetensors": 10,
    "checkpoints/best-000002.safetensors.sha256": 10,
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {**SETTINGS, "evaluation.every_rounds": 2}
    folder = fedfeast.train("digits", tmp_path_factory.mktemp("tiny") / "tiny", settings).folder.path
    rows = [{**row, "median_ms": 0.5} for row in json.loads((folder / "summary.json").read_text())["curve"]]
    (folder / "latency.json").write_text(json.dumps({"device": "another", "points": rows}))
    return folder


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value inside."""
    yield path
    inside = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in inside:
        yield from places(value, (*path, key))


def reshaped(text: str, generator: np.random.Generator) -> str:
    """Return JSON in which one value is another one, or gone."""
    content = json.loads(text)
    ways = list(places(content))
    *way, last = ways[generator.integers(1, len(ways))]
    inside = content
    for key in way:
        inside = inside[key]
    if generator.integers(4):
        inside[last] = ODD[generator.integers(len(ODD))]
    else:
        del inside[last]
    return json.dumps(content)


def damaged(name: str, content: bytes, generator: np.random.Generator) -> bytes:
    """Return the content with a value exchanged, with bytes exchanged, cut off, or nothing of it."""
    kind = generator.integers(10)
    if kind < 6 and name.endswith((".json", ".jsonl")):
        lines = [content.decode()] if name.endswith(".json") else content.decode().splitlines()
        chosen = generator.integers(len(lines))
        lines[chosen] = reshaped(lines[chosen], generator)
        return "\n".join([*lines, ""]).encode()
    if kind < 6 and name.endswith((".csv", ".toml")):
        parts = content.decode().replace(",", "\x01,\x01").replace("=", "\x01=\x01").split("\x01")
        odd = ODD[generator.integers(len(ODD))]
        parts[generator.integers(len(parts))] = str(odd)[:400]
        return "".join(parts).encode()
    if kind < 8:
        changed = bytearray(content)
        for _ in range(generator.integers(1, 4)):
            changed[generator.integers(len(changed))] = generator.integers(256)
        return bytes(changed)
    return content[: generator.integers(len(content))] if kind < 9 else b""


def read_all(folder: Path) -> None:
    """Read what is in a folder in every way; whatever is wrong is bad input."""
    with suppress(InvalidInput):
        run = Run.open(folder)
        for read in (
            lambda: run.summary,
            lambda: run.population_score,
            run.folder.metrics,
            run.folder.environment,
            run.folder.clients,
            run.folder.test_sets,
            lambda: run.fairness,
            run.best,
        ):
            with suppress(InvalidInput):
                read()


@pytest.mark.parametrize("name", FILES)
def test_damage_is_said_and_nothing_ends(
    tiny: Path, name: str, client_of: Callable[[Any], Any], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    copytree(tiny, folder)
    collection = Collection([folder])
    client, watched, whole = client_of(build_app(collection)), collection.runs["run"], (folder / name).read_bytes()
    for number in range(FILES[name]):
        (folder / name).write_bytes(damaged(name, whole, named_generator(number, name)))
        read_all(folder)
        with suppress(InvalidInput):
            watched.refresh()
        for address in ("run", "history", "fleet", "fairness", "variants", "choose?max_macs=1e9"):
            answer = client.get(f"/api/{address}")
            assert answer.status_code in (200, 404), (number, address, answer.text)
            assert str(tmp_path) not in answer.text
        if number % 40 == 0:
            with suppress(InvalidInput):
                write_report([Run.open(folder)], tmp_path / "report.html")
    (folder / name).write_bytes(whole)
    watched.refresh()
    assert watched.seen.note == "Finished and measured on the test set."
    assert len(client.get("/api/variants").json()["variants"]) == 4


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("summary.json", '{"finished_rounds": 2, "curve": 5}', "Damaged in the run's folder: summary.json."),
        ("clients.csv", "name,budget_macs\na,-1\n", "Damaged in the run's folder: clients.csv."),
        ("metrics.jsonl", '{"round": 1}\nx\n', "Damaged in the run's folder: metrics.jsonl (2 of its lines)."),
    ],
)
def test_what_has_another_shape_is_said(tiny: Path, tmp_path: Path, name: str, content: str, sentence: str) -> None:
    copytree(tiny, tmp_path / "run")
    (tmp_path / "run" / name).write_text(content)
    run = WatchedRun(tmp_path / "run", "run")
    assert run.seen.note.endswith(sentence)
    assert (run.seen.summary is None, run.seen.fleet is None) == (name == "summary.json", name == "clients.csv")


def test_another_run_in_the_same_place_is_another_run(tiny: Path, tmp_path: Path) -> None:
    copytree(tiny, tmp_path / "run")
    settings = {**SETTINGS, "method.name": "heterofl", "training.rounds": 1, "seed": 5}
    other = fedfeast.train("digits", tmp_path / "other", settings).folder.path
    run = WatchedRun(tmp_path / "run", "run")
    first = run.seen.variants[0]["id"]
    (tmp_path / "run").rename(tmp_path / "old")
    run.refresh()
    assert (run.seen.note, run.seen.variants, run.offer_of(first)) == ("The run's folder is gone.", (), None)
    other.rename(tmp_path / "run")
    run.refresh()
    assert (run.run.recipe.method_name, run.total_rounds, len(run.seen.rows)) == ("heterofl", 1, 1)
    assert run.offer_of(first) is None
    assert run.seen.offer is not None
    assert run.seen.offer.bundles.facts["method"] == "heterofl"


def test_weights_of_another_network_are_not_served(tiny: Path, tmp_path: Path) -> None:
    copytree(tiny, tmp_path / "run")
    settings = {**SETTINGS, "method.name": "heterofl", "training.rounds": 2, "evaluation.every_rounds": 2}
    other = fedfeast.train("digits", tmp_path / "other", settings).folder.path
    for file in (other / "checkpoints").iterdir():
        (tmp_path / "run" / "checkpoints" / file.name).write_bytes(file.read_bytes())
    run = WatchedRun(tmp_path / "run", "run")
    assert run.seen.variants == ()
    assert "they are another run's; restore those of this one" in run.seen.note
    with pytest.raises(InvalidInput, match="they are another run's"):
        Run.open(tmp_path / "run").evaluate()


@contextmanager
def full_disk(most_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: the error is that of a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_said_by_the_server(tiny: Path, tmp_path: Path, client_of: Callable[[Any], Any]) -> None:
    copytree(tiny, tmp_path / "run")
    client = client_of(build_app(Collection([tmp_path / "run"])))
    variant = client.get("/api/variants").json()["variants"][3]
    with full_disk(10_000):
        answer = client.get(variant["onnx"])
    assert answer.status_code == 507
    assert "is full (File too large): free some of it, then try again; nothing was written." in answer.json()["detail"]
    assert str(tmp_path) not in answer.text
    assert not list((tmp_path / "run" / "served").rglob("*.onnx"))
    assert client.get(variant["onnx"]).status_code == 200


def test_a_download_brings_no_deleted_folder_back(tiny: Path, tmp_path: Path, client_of: Callable[[Any], Any]) -> None:
    copytree(tiny, tmp_path / "run")
    client = client_of(build_app(Collection([tmp_path / "run"])))
    variant = client.get("/api/variants").json()["variants"][0]
    rmtree(tmp_path / "run")
    answer = client.get(variant["onnx"])
    assert (answer.status_code, answer.json()["detail"]) == (
        410,
        f"the variant '{variant['id']}' is gone: its run's folder was deleted or moved away.",
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("looked_at_again", [False, True])
def test_a_run_that_is_gone_and_another_one(
    tiny: Path, tmp_path: Path, client_of: Callable[[Any], Any], looked_at_again: bool
) -> None:
    copytree(tiny, tmp_path / "run")
    settings = {**SETTINGS, "method.name": "heterofl", "training.rounds": 1}
    other = fedfeast.train("digits", tmp_path / "other", settings).folder.path
    collection = Collection([tmp_path / "run", other])
    client = client_of(build_app(collection))
    lost = client.get("/api/variants?run=run").json()["variants"][0]
    image = io.BytesIO()
    Image.new("L", (8, 8), 90).save(image, "PNG")
    predicted = f"/api/predict/{lost['id']}"
    assert client.ask("POST", predicted, content=image.getvalue()).status_code == 200
    assert client.get(lost["onnx"]).status_code == 200
    rmtree(tmp_path / "run")
    if looked_at_again:
        collection.runs["run"].refresh()
        told = client.get("/api/run").json()
        assert (told["state"], told["note"], told["runs"]) == ("gone", "The run's folder is gone.", ["run", "other"])
        assert client.get("/api/variants").json()["variants"] == []
    answer = client.get("/api/choose?max_macs=6e5")
    assert (answer.status_code, answer.json()["detail"]) == (410, "run is gone: its folder was deleted or moved away.")
    assert client.get("/api/fleet").status_code == 410
    for method, path in (("GET", lost["onnx"]), ("HEAD", lost["safetensors"]), ("POST", predicted)):
        assert client.ask(method, path, content=image.getvalue()).status_code == 410
    assert client.get("/models/128320-00000000.onnx").status_code == 404
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"], "nothing was made again"
    chosen = client.get("/api/choose?run=other&max_macs=1e9")
    assert chosen.status_code == 200
    assert client.get(chosen.json()["variant"]["onnx"]).status_code == 200


def test_no_answer_names_the_servers_places(tiny: Path, tmp_path: Path, client_of: Callable[[Any], Any]) -> None:
    copytree(tiny, tmp_path / "run")
    client = client_of(build_app(Collection([tmp_path / "run"])))
    variant = client.get("/api/variants").json()["variants"][0]
    assert client.get(variant["onnx"]).status_code == 200
    (kept,) = (tmp_path / "run" / "served").glob("*/*/*")
    (kept / "weights.safetensors").write_bytes(b"damaged")
    damaged_one = client.get(variant["safetensors"])
    (kept / "manifest.json").unlink()
    (kept / "model.onnx").write_bytes(b"damaged")
    for answer in (damaged_one, client.get(variant["onnx"])):
        assert answer.status_code == 409
        assert kept.name in answer.json()["detail"]
        assert str(tmp_path) not in answer.text


def test_a_damaged_best_round_is_said_and_replaces_no_summary(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {**SETTINGS, "training.rounds": 3, "training.schedule": "constant", "checkpoint.every_rounds": 1}
    run = fedfeast.train("digits", tmp_path / "run", {**settings, "evaluation.every_rounds": 1})
    checkpoints, summary = run.folder.path / "checkpoints", (run.folder.path / "summary.json").read_bytes()
    bests = sorted(checkpoints.glob("best-*.safetensors"))
    assert len(bests) == 2, "this test needs a best round that replaced another one"
    bests[-1].write_bytes(b"damaged")
    with pytest.raises(InvalidInput, match=rf"{bests[-1].name} is damaged.*summary.json is of round"):
        Run.open(run.folder.path).evaluate()
    assert (run.folder.path / "summary.json").read_bytes() == summary
    caplog.clear()
    assert Run.open(run.folder.path).best().finished_rounds == int(bests[0].name[5:11])
    assert f"{bests[-1].name} is damaged" in caplog.text
    watched = WatchedRun(run.folder.path, "run")
    assert watched.seen.note.startswith(f"{bests[-1].name} is damaged: the best round that is left is")
    bests[0].write_bytes(b"damaged")
    with pytest.raises(InvalidInput, match=r"is damaged, and no other validated round is left"):
        Run.open(run.folder.path).best()
