"""One run of the digits for all tests of this folder, and servers of it: in this process, and as their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from run_files import forget_sizes
from starlette.types import ASGIApp

import fedfeast
from fedfeast.server.api import build_app
from fedfeast.server.collection import Collection

SETTINGS = {"training.rounds": 14, "evaluation.every_rounds": 2}  # enough for a drawn digit to be seen
Serve = Callable[..., str]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; no test changes it but by what its server keeps in it."""
    return fedfeast.train("digits", out=tmp_path_factory.mktemp("runs") / "digits", settings=SETTINGS).folder.path


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    copytree(trained, tmp_path / "digits", ignore=ignore_patterns("served"))
    return tmp_path / "digits"


@pytest.fixture
def validated_as(folder: Path) -> Callable[..., Path]:
    """Return the copied run after its networks validated as told, from the smallest to the largest; only then."""

    def write(*values: float) -> Path:
        forget_sizes(folder)
        summary = json.loads((folder / "summary.json").read_text())
        rows = [{**row, "value": value} for row, value in zip(summary["validation_curve"], values, strict=False)]
        (folder / "summary.json").write_text(json.dumps({**summary, "validation_curve": rows}))
        return folder

    return write


class Client:
    """Asks an application in this process, without a socket."""

    def __init__(self, app: ASGIApp, portal: BlockingPortal) -> None:
        self._portal = portal
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://server")

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self._portal.call(partial(self._client.request, method, path, **more))

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.ask("GET", path, **more)


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture
def client_of(portal: BlockingPortal) -> Callable[[ASGIApp], Client]:
    return lambda app: Client(app, portal)


@pytest.fixture(scope="session")
def client(trained: Path, portal: BlockingPortal) -> Client:
    return Client(build_app(Collection([trained])), portal)


@contextmanager
def servers() -> Iterator[Serve]:
    """Give what starts fedfeast serve as a process on a free port and returns its address; all end with the block."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str | Path) -> str:
        command = [sys.executable, "-m", "fedfeast", "serve", *map(str, words), "--port", "0"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving  http://127.0.0.1:"), line
        return line.split()[1]

    try:
        yield start
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(timeout=60)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers that end with the test."""
    with servers() as start:
        yield start


@pytest.fixture(scope="session")
def address(trained: Path) -> Iterator[str]:
    """Where a server of the finished run answers, for all tests."""
    with servers() as start:
        yield start(trained)
