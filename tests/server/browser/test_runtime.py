import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.server.api import build_app
from fedfeast.server.browser import runtime
from fedfeast.server.browser.runtime import BrowserRuntime, fetch_runtime, find_runtime, read_archive
from fedfeast.server.collection import Collection

FILES = {runtime.SCRIPT: b"export const made = 'up';", runtime.PROGRAM: b"\0asm"}


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Take made-up files for the runtime's."""
    monkeypatch.setattr(
        runtime, "SHA256", {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    )
    return FILES


def pack(place: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(place, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/dist/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return place


def test_an_archive_becomes_a_folder_that_is_served(made_up: dict[str, bytes], tmp_path: Path) -> None:
    archive = pack(tmp_path / "ort.tgz", {**made_up, "other.js": b"x", "../../outside": b"x"})
    folder = fetch_runtime(tmp_path / "a" / "folder", archive)
    assert {file.name for file in folder.iterdir()} == set(made_up)
    found = find_runtime(folder)
    assert found is not None
    assert found.files == made_up
    (folder / "more.js").write_text("not served")
    again = find_runtime(folder)
    assert again is not None
    assert set(again.files) == set(made_up)


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"bundle.min.mjs in .*ort.tgz has the sha256 [0-9a-f]{12}\.\.\., not that"):
        read_archive(pack(tmp_path / "ort.tgz", FILES))
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(
        InvalidInput, match=r"not that of version 1\.30\.0: fetch onnxruntime-web@1\.30\.0 with fedfeast"
    ):
        find_runtime(tmp_path)


def test_a_folder_without_them_and_no_folder_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"has no ort.wasm.bundle.min.mjs of onnxruntime-web \(No such file"):
        find_runtime(tmp_path)
    monkeypatch.setattr(runtime, "DEFAULT_FOLDER", tmp_path)
    assert find_runtime() is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, r"No such file"),
        (b"no archive", r"ort.tgz is no archive of onnxruntime-web@1.30.0"),
        (b"\x1f\x8b\x08\x00", r"ort.tgz is no archive of onnxruntime-web@1.30.0"),
    ],
)
def test_what_is_no_archive_is_said(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    if content is not None:
        (tmp_path / "ort.tgz").write_bytes(content)
    with pytest.raises(InvalidInput, match=sentence):
        fetch_runtime(tmp_path / "folder", tmp_path / "ort.tgz")
    assert not (tmp_path / "folder").exists()


def test_an_archive_without_the_files_and_a_folder_that_cannot_be_written(
    made_up: dict[str, bytes], tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="is no archive of onnxruntime-web"):
        read_archive(pack(tmp_path / "empty.tgz", {}))
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"file cannot be written \(.*\): give another folder"):
        fetch_runtime(tmp_path / "file", pack(tmp_path / "ort.tgz", made_up))


def write_npm(folder: Path, lines: str) -> None:
    """Put a program of the name npm first on the path, that does what the lines say."""
    (folder / "npm").write_text(f"#!/bin/sh\n{lines}\n")
    (folder / "npm").chmod(0o755)


def test_npm_that_fails_or_is_missing_is_said(
    made_up: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    write_npm(tmp_path, "echo 'npm error code ENOTFOUND' >&2; echo 'npm error A log' >&2; exit 1")
    sentence = r"npm could not fetch onnxruntime-web@1.30.0 \(code ENOTFOUND\): try again with a connection"
    with pytest.raises(InvalidInput, match=sentence):
        fetch_runtime(tmp_path / "folder")
    archive = pack(tmp_path / "ort.tgz", made_up)
    write_npm(
        tmp_path, f'test "$*" = "pack onnxruntime-web@1.30.0 --loglevel=error --fetch-retries=1" && cp {archive} .'
    )
    assert fetch_runtime(tmp_path / "folder") == tmp_path / "folder"
    write_npm(tmp_path, "exit 1")
    assert fetch_runtime(tmp_path / "folder") == tmp_path / "folder", "what lies there is not fetched again"
    monkeypatch.setenv("PATH", str(tmp_path / "folder"))
    monkeypatch.setattr("sys.executable", str(tmp_path / "folder" / "python"))
    with pytest.raises(InvalidInput, match=r"npm, which fetches .* is not installed: install Node.js, or pip install"):
        fetch_runtime(tmp_path / "other")


def test_two_files_are_served_and_nothing_else_of_their_folder(
    trained: Path, client_of: Callable[[Any], Any], client: Any
) -> None:
    served = client_of(build_app(Collection([trained]), runtime=BrowserRuntime(FILES)))
    assert served.get("/healthz").json()["onnxruntime_web"] == runtime.VERSION
    for name, kind in ((runtime.SCRIPT, "text/javascript; charset=utf-8"), (runtime.PROGRAM, "application/wasm")):
        answer = served.get(f"/runtime/{runtime.VERSION}/{name}")
        assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, FILES[name], kind)
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-encoding"] == "gzip"  # undone by the client
        plain = served.get(f"/runtime/{runtime.VERSION}/{name}", headers={"accept-encoding": "identity"})
        assert (plain.content, "content-encoding" in plain.headers) == (FILES[name], False)
        assert plain.headers["etag"] != answer.headers["etag"]
        known = {"if-none-match": answer.headers["etag"]}
        assert served.get(f"/runtime/{runtime.VERSION}/{name}", headers=known).status_code == 304
    for other in ("", "ort.all.min.mjs", "..%2fworker.js", f"..%2f{runtime.SCRIPT}", "%00", "package.json"):
        assert served.get(f"/runtime/{runtime.VERSION}/{other}").status_code == 404
    assert served.get(f"/runtime/1.0.0/{runtime.SCRIPT}").status_code == 404
    assert client.get("/healthz").json()["onnxruntime_web"] is None
    for path in ("worker.js", f"{runtime.VERSION}/{runtime.SCRIPT}"):
        assert client.get(f"/runtime/{path}").status_code == 404


def test_the_worker_alone_may_compile_and_only_where_there_is_a_runtime(
    trained: Path, client_of: Callable[[Any], Any], client: Any
) -> None:
    served = client_of(build_app(Collection([trained]), runtime=BrowserRuntime(FILES)))
    for path in (
        "/",
        "/docs",
        "/static/page.js",
        "/static/in-browser.js",
        f"/runtime/{runtime.VERSION}/{runtime.SCRIPT}",
    ):
        policy = served.get(path).headers["content-security-policy"]
        assert policy == client.get("/").headers["content-security-policy"]
        assert "unsafe" not in policy
    policy = served.get("/runtime/worker.js").headers["content-security-policy"]
    assert policy.endswith("; script-src 'self' 'wasm-unsafe-eval'")
    assert policy.count("unsafe") == 1
    assert "http" not in policy
