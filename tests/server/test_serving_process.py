import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.server.entry import serve
from fedfeast.server.serving_process import address_of, bind, run_server


def test_a_port_that_is_taken() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert address_of(taken) == f"http://127.0.0.1:{port}/"
        with pytest.raises(InvalidInput, match=f"127.0.0.1 port {port} cannot be taken .*: give another --port"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "port", "sentence"),
    [
        ("127.0.0.1", 65536, "--port 65536: give a number from 0"),
        ("127.0.0.1", -1, "--port -1"),
        ("nowhere.invalid", 0, "--host nowhere.invalid is no address of this machine"),
        ("192.0.2.1", 0, "192.0.2.1 port 0 cannot be taken"),
    ],
)
def test_an_address_that_does_not_exist(host: str, port: int, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        bind(host, port)


def test_an_address_of_six() -> None:
    with socket.socket(socket.AF_INET6) as six:
        six.bind(("::1", 0))
        assert address_of(six).startswith("http://[::1]:")


@pytest.mark.parametrize("token", ["", " ", "two\nlines", "caf\u00e9 "])
def test_a_token_that_no_header_can_carry(trained: Path, token: str) -> None:
    with pytest.raises(InvalidInput, match="--token must be printable"):
        run_server([trained], "127.0.0.1", 0, token, print)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_in_order(trained: Path, stop: signal.Signals) -> None:
    command = [sys.executable, "-m", "fedfeast", "serve", str(trained), "--port", "0", "--token", "secret"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[1]
        assert httpx.get(f"{address}healthz").json()["status"] == "ok"
        assert httpx.get(f"{address}api/run").status_code == 401
        assert httpx.get(f"{address}api/run", headers={"authorization": "Bearer secret"}).status_code == 200
        asked = time.monotonic()
        server.send_signal(stop)
        _, told = server.communicate(timeout=60)
        assert time.monotonic() - asked < 15
    assert "Traceback" not in told
    assert server.returncode in (0, -stop)


def test_it_is_pythons_way_in(tmp_path: Path) -> None:
    assert fedfeast.serve is serve
    with pytest.raises(InvalidInput, match="is no run folder"):
        fedfeast.serve(tmp_path, port=0)


def test_a_missing_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("fedfeast.server.") and name != serve.__module__]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InvalidInput, match=r"the server needs the uvicorn package: pip install 'fedfeast\[serve\]'"):
        serve(tmp_path)


def test_a_page_from_elsewhere_reads_nothing(address: str) -> None:
    assert httpx.get(f"{address}api/run").status_code == 200
    rebound = httpx.get(f"{address}api/run", headers={"host": "rebound.example.org"})
    assert rebound.status_code == 421
    assert "digits" not in rebound.text
