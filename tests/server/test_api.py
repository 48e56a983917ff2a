import http.client
import io
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any
from urllib.parse import urlsplit

import onnxruntime
import pytest
from PIL import Image

import fedfeast
from fedfeast.recipes import Recipe
from fedfeast.runs.assembly import Federation, assemble
from fedfeast.server import api
from fedfeast.server.api import build_app
from fedfeast.server.collection import Collection
from fedfeast.server.predictions import read_example
from fedfeast.whole_files import sha256_of

ClientOf = Callable[[Any], Any]


def digit(side: int = 8) -> bytes:
    content = io.BytesIO()
    Image.new("L", (side, side), 90).save(content, "PNG")
    return content.getvalue()


def test_a_run_and_its_parts(client: Any) -> None:
    run = client.get("/api/run").json()
    assert (run["name"], run["state"], run["runs"]) == ("digits", "finished", ["digits"])
    assert client.get("/api/run?run=digits").json() == run
    rounds = client.get("/api/history?after=12").json()["rounds"]
    assert [row["round"] for row in rounds] == [13, 14]
    assert rounds[0]["sizes"] == []
    assert [one["name"] for one in rounds[1]["sizes"]] == [
        one["name"] for one in client.get("/api/variants").json()["variants"]
    ]
    fleet = client.get("/api/fleet").json()
    assert (fleet["clients"], fleet["served"]) == (40, 40)
    fairness = client.get("/api/fairness").json()
    assert [one["clients"] for one in fairness["deciles"]] == [4] * 10
    assert sum(one["answered"] for one in fairness["deciles"]) == sum(
        one["clients"] for one in client.get("/api/history").json()["rounds"]
    )
    assert {one["late"] for one in fairness["deciles"]} == {None}, "simulated clients are never late"
    mean = sum(one["score"] for one in fairness["deciles"]) / 10
    assert mean == pytest.approx(run["population_score"])
    worst = min(one["score"] for one in fairness["deciles"])
    assert fairness["deciles"][fairness["worst_decile"] - 1]["score"] == worst
    assert client.get("/healthz").json() == {"status": "ok", "version": "0.1.0", "onnxruntime_web": None}
    assert client.get("/healthz").headers["cache-control"] == "no-cache"
    assert 'fedfeast_run_finished_rounds{run="digits"} 14' in client.get("/metrics").text


def unmeasured(variant: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a variant as it is listed where nobody measured its latency."""
    return None if variant is None else {**variant, "latency_ms": None}


def test_variants_and_the_choice_among_them(client: Any) -> None:
    listed = client.get("/api/variants").json()
    assert [one["macs"] for one in listed["variants"]] == sorted(one["macs"] for one in listed["variants"])
    for query, macs in {
        "max_macs=6e5": 545_920,
        "max_macs=1e308": 4_974_848,
        "max_params=48578": 545_920,
        "max_macs=1e7&max_params=8000": 128_320,
        "max_latency_ms=10000": 4_974_848,
    }.items():
        chosen = client.get(f"/api/choose?{query}").json()["variant"]
        assert chosen["macs"] == macs
        assert unmeasured(chosen) in listed["variants"]
        assert (chosen["latency_ms"] is not None) == ("latency" in query)


def test_a_smaller_variant_that_validates_better(validated_as: Callable[..., Path], client_of: ClientOf) -> None:
    client = client_of(build_app(Collection([validated_as(0.2, 0.9, 0.3, 0.5, 0.6, 0.6, 0.7, 0.8)])))
    listed = client.get("/api/variants").json()["variants"]
    assert [one["validation_value"] for one in listed] == [0.2, 0.9, 0.3, 0.5, 0.6, 0.6, 0.7, 0.8]
    for query, largest, better in [
        ("max_macs=6e5", listed[3], listed[1]),
        ("max_macs=3e5", listed[1], None),
        ("max_params=1e9", listed[7], listed[1]),
        ("max_latency_ms=10000", listed[7], listed[1]),
    ]:
        answer = client.get(f"/api/choose?{query}").json()
        assert answer["chosen_by"] == "largest"
        assert (unmeasured(answer["variant"]), unmeasured(answer["better"])) == (largest, better)
        best = client.get(f"/api/choose?{query}&best=true").json()
        assert (best["chosen_by"], unmeasured(best["variant"]), best["better"]) == ("best", better or largest, None)
    assert client.get("/api/choose?max_macs=1e3&best=true").status_code == 404
    assert client.get("/api/choose?max_macs=6e5&best=perhaps").status_code == 422


def test_nothing_is_best_before_it_is_validated(validated_as: Callable[..., Path], client_of: ClientOf) -> None:
    client = client_of(build_app(Collection([validated_as()])))
    answer = client.get("/api/choose?max_macs=6e5").json()
    assert (answer["variant"]["validation_value"], answer["better"]) == (None, None)
    answer = client.get("/api/choose?max_macs=6e5&best=true")
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "no variant of digits has a validation figure yet: they are measured when training ends.",
    )


def test_a_budget_below_the_least_variant(client: Any) -> None:
    answer = client.get("/api/choose?max_macs=128319")
    assert answer.status_code == 404
    assert answer.json() == {
        "detail": "no variant fits 128319 MACs: the least needs 128320 MACs, the smallest 7730 parameters.",
        "least_macs": 128_320,
        "least_parameters": 7_730,
    }
    assert client.get("/api/choose?max_latency_ms=1e-9").status_code == 404


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", "-1", "0", "", "6e5x", "9" * 5000, "%00", "٣x"])
def test_numbers_that_are_none(client: Any, value: str) -> None:
    answer = client.get(f"/api/choose?max_macs={value}")
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("max_macs = ")
    assert len(answer.json()["detail"]) < 200


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/api/choose", 400, "no limit was given: say max_macs, max_params or max_latency_ms."),
        ("/api/run?run=other", 404, "there is no run 'other': this server has digits."),
        ("/api/history?after=-1", 422, "after = '-1': Input should be greater than or equal to 0."),
        ("/models/128320-00000000.onnx", 404, "there is no variant '128320-00000000': /api/variants lists those"),
        ("/models/x.onnx", 422, "id = 'x': String should match pattern"),
        ("/models/128320-00000000.pt2", 404, "Not Found"),
    ],
)
def test_what_does_not_exist(client: Any, path: str, status: int, sentence: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert answer.json()["detail"].startswith(sentence)


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/api/run"), ("DELETE", "/models/1-00000000.onnx"), ("PUT", "/"), ("GET", "/api/predict/1-00000000")],
)
def test_wrong_methods(client: Any, method: str, path: str) -> None:
    answer = client.ask(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"]


def test_a_download_is_the_chosen_network(client: Any) -> None:
    chosen = client.get("/api/choose?max_macs=3e5").json()["variant"]
    whole = client.get(chosen["onnx"])
    assert whole.status_code == 200
    assert whole.headers["content-disposition"] == 'attachment; filename="digits-257.3k.onnx"'
    assert onnxruntime.InferenceSession(whole.content).get_inputs()[0].shape[1:] == [1, 8, 8]
    size, etag = len(whole.content), whole.headers["etag"]
    head = client.ask("HEAD", chosen["onnx"])
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(size))
    part = client.get(chosen["onnx"], headers={"range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, whole.content[10:20])
    assert part.headers["content-range"] == f"bytes 10-19/{size}"
    resumed = client.get(chosen["onnx"], headers={"range": f"bytes={size - 5}-", "if-range": etag})
    assert resumed.content == whole.content[-5:]
    assert client.get(chosen["onnx"], headers={"range": f"bytes={size}-"}).status_code == 416
    assert client.get(chosen["onnx"], headers={"range": "bytes=5-1"}).status_code == 400
    assert client.get(chosen["onnx"], headers={"if-none-match": etag}).status_code == 304
    parts = ",".join(f"{start}-{start}" for start in range(0, 4000, 2))
    assert client.get(chosen["onnx"], headers={"range": f"bytes={parts}"}).status_code == 416
    assert client.get("/static/style.css", headers={"range": f"bytes={parts}"}).status_code == 416
    weights = client.get(chosen["safetensors"])
    assert weights.headers["etag"].strip('"') == weights.headers["x-sha256"]


def test_many_ask_for_one_that_is_not_built_yet(folder: Path, client_of: ClientOf) -> None:
    client = client_of(build_app(Collection([folder])))
    variant = client.get("/api/variants").json()["variants"][2]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(client.get, [variant["onnx"]] * 8))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len(list(folder.glob("served/*/*/*"))) == 1


def test_a_prediction(client: Any) -> None:
    variant = client.get("/api/variants").json()["variants"][0]["id"]
    answer = client.ask("POST", f"/api/predict/{variant}", content=digit())
    assert answer.status_code == 200
    assert len(answer.json()["classes"]) == 10
    assert answer.json()["milliseconds"] > 0
    wrong = client.ask("POST", f"/api/predict/{variant}", content=digit(9))
    assert wrong.status_code == 422
    assert wrong.json()["detail"] == ("the image has 9 x 9 pixels, and this run's networks take 8 x 8: scale it first.")
    assert client.ask("POST", f"/api/predict/{variant}", content=b"no image").status_code == 422
    assert client.ask("POST", f"/api/predict/{variant}", content=bytes(5_000_000)).status_code == 413


def test_few_images_are_decoded_at_once(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, most, lock = 0, 0, threading.Lock()

    def counted(content: bytes, facts: Any) -> Any:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.02)
        with lock:
            at_once -= 1
        return read_example(content, facts)

    monkeypatch.setattr(api, "read_example", counted)
    variant = client.get("/api/variants").json()["variants"][0]["id"]
    with ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(client.ask, "POST", f"/api/predict/{variant}", content=digit()) for _ in range(12)]
    assert {answer.result().status_code for answer in answers} == {200}
    assert most == api.DECODERS


def test_a_run_without_a_finished_round(tmp_path: Path, client_of: ClientOf) -> None:
    fedfeast.Run.create("digits", tmp_path / "run")
    client = client_of(build_app(Collection([tmp_path / "run"])))
    assert client.get("/api/run").json()["state"] == "waiting"
    assert client.get("/api/variants").json()["variants"] == []
    answer = client.get("/api/choose?max_macs=1e6")
    assert (answer.status_code, answer.json()["detail"]) == (404, "run has no model yet: No round is finished yet.")
    assert client.get("/api/fleet").status_code == 404
    assert client.get("/api/fairness").json()["deciles"] == []
    assert client.get("/models/128320-00000000.onnx").status_code == 404


def test_a_kept_bundle_that_is_damaged(folder: Path, client_of: ClientOf) -> None:
    client = client_of(build_app(Collection([folder])))
    variant = client.get("/api/choose?max_macs=2e5").json()["variant"]
    assert client.get(variant["onnx"]).status_code == 200
    (file,) = folder.glob("served/*/*/*/model.onnx")
    file.write_bytes(b"damaged")
    answer = client.get(variant["onnx"])
    assert answer.status_code == 409
    assert answer.json()["detail"].endswith(f"delete the folder {file.parent.name}, and it is built again.")


def test_data_that_are_gone(folder: Path, client_of: ClientOf, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(build_app(Collection([folder])))
    variant = client.get("/api/choose?max_macs=2e5").json()["variant"]

    def gone(recipe: object) -> None:
        raise fedfeast.InvalidInput("the data are not here: fetch them.")

    monkeypatch.setattr("fedfeast.runs.run.assemble", gone)
    answer = client.get(variant["onnx"])
    assert (answer.status_code, answer.json()["detail"]) == (409, "the data are not here: fetch them.")


def test_a_folder_that_is_deleted_while_a_network_is_built(
    folder: Path, client_of: ClientOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(build_app(Collection([folder])))
    variant = client.get("/api/choose?max_macs=2e5").json()["variant"]

    def load_data_and_lose_the_folder(recipe: Recipe) -> Federation:
        rmtree(folder)
        return assemble(recipe)

    monkeypatch.setattr("fedfeast.runs.run.assemble", load_data_and_lose_the_folder)
    answer = client.get(variant["onnx"])
    assert (answer.status_code, answer.json()["detail"]) == (
        410,
        "the run's folder is gone: nothing can be built from it.",
    )
    assert not folder.exists()


def test_several_runs(trained: Path, folder: Path, client_of: ClientOf) -> None:
    client = client_of(build_app(Collection([trained, folder]), token="right"))
    known = {"authorization": "Bearer right"}
    assert client.get("/api/run").status_code == 401
    assert client.get("/api/run", headers=known).json()["runs"] == ["digits", "digits-2"]
    variant = client.get("/api/variants?run=digits-2", headers=known).json()["variants"][0]
    answer = client.get(variant["onnx"], headers=known)
    assert answer.headers["cache-control"].startswith("private")


@pytest.mark.parametrize(
    "path",
    [
        "/models/../../../../etc/passwd.onnx",
        "/models/..%2f..%2f..%2fetc%2fpasswd.onnx",
        "/models/%2e%2e/%2e%2e/recipe.toml",
        "/models/....//....//recipe.toml.onnx",
        "/models/128320-%00.onnx",
        "/models/\\..\\..\\recipe.onnx",
        "/static/../../../recipe.toml",
        "/static/%2e%2e%2fapi.py",
        "//etc/passwd",
        "/models/" + "9" * 9000 + "-00000000.onnx",
    ],
)
def test_paths_lead_nowhere_else(address: str, path: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    connection.putrequest("GET", path, skip_host=False)
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status in (400, 404, 422)
    assert b"root:" not in content
    assert b"[data]" not in content
    assert b"Traceback" not in content
    connection.close()


def test_requests_that_are_no_http(address: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    connection.putrequest("GET", "/healthz")
    connection.putheader("X-Long", "x" * 200_000)
    connection.endheaders()
    with suppress(ConnectionError):  # refused before everything was sent
        assert connection.getresponse().status == 400
    connection.close()


def test_what_is_downloaded_is_what_was_kept(client: Any, trained: Path) -> None:
    variant = client.get("/api/choose?max_macs=2e5").json()["variant"]
    answer = client.get(variant["safetensors"])
    files = {sha256_of(file): file for file in trained.glob("served/*/*/*/weights.safetensors")}
    assert files[answer.headers["x-sha256"]].read_bytes() == answer.content
