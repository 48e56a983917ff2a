"""The demonstration itself is `make fleet-demo`; tests/integration drives the same fleet of processes."""

import asyncio
import signal
import socket
import ssl
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from fedfeast.app import fleet
from fedfeast.errors import InvalidInput
from fedfeast.flower.gateway import load_certificates
from fedfeast.flower.local_fleet import free_port
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method


def test_credentials_are_made_where_they_are_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.certificate(["localhost"], tmp_path / "credentials")
    fleet.key("kitchen", tmp_path / "keys")
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} == {
        "ca.crt",
        "ca.key",
        "server.pem",
        "server.key",
        "kitchen",
        "kitchen.pub",
    }
    assert stat.S_IMODE((tmp_path / "keys" / "kitchen").stat().st_mode) == 0o600
    said = capsys.readouterr().out
    assert "for the server alone" in said
    assert "kitchen.pub" in said
    authority, former = ((tmp_path / "credentials" / name).read_bytes() for name in ("ca.crt", "server.pem"))
    fleet.certificate(None, tmp_path / "credentials", renew=True)
    assert (tmp_path / "credentials" / "ca.crt").read_bytes() == authority
    assert (tmp_path / "credentials" / "server.pem").read_bytes() != former


def test_a_demo_needs_the_app(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no Flower app"):
        fleet.demo(tmp_path / "run", 1, tmp_path)


def test_without_flower_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"pip install 'fedfeast\[flower\]'"):
        fleet.key("kitchen", tmp_path)


def test_the_budgets_are_small_middle_and_top() -> None:
    recipe = load_recipe("digits", [part.strip() for part in fleet.SETTINGS.format(rounds=4).split(";")])
    macs = [point.macs for point in build_method(recipe)[0].operating_points()]
    small, middle, top = (sum(cost <= budget for cost in macs) for budget in fleet.BUDGETS_MACS.values())
    assert (small, top) == (1, len(macs))
    assert small < middle < top
    assert recipe.fleet.least_clients == 3


def test_a_port_in_use_is_said_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(InvalidInput, match=f"port {port} is in use"):
            fleet.run_demo(tmp_path, 1, tmp_path / "run", Console(quiet=True), port)
    assert list(tmp_path.iterdir()) == []


def test_a_gateway_says_where_it_listens_and_ends_at_ctrl_c(tmp_path: Path) -> None:
    folder, log, port = tmp_path / "credentials", tmp_path / "log", free_port()
    fleet.certificate(["fleet.example.org"], folder)

    async def watch() -> int:
        shown, _ = load_certificates(folder)
        async with await asyncio.start_server(
            lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=shown
        ) as superlink:
            where = f"127.0.0.1:{superlink.sockets[0].getsockname()[1]}"
            words = ["--certificates", str(folder), "--superlink", where, "--host", "127.0.0.1", "--port", str(port)]
            program = [sys.executable, "-m", "fedfeast", "fleet", "gateway", *words]
            with log.open("wb") as said:
                process = await asyncio.create_subprocess_exec(*program, stderr=said)
            async with asyncio.timeout(60):
                while "gateway on" not in log.read_text():
                    await asyncio.sleep(0.05)
            trusted = ssl.create_default_context(cafile=folder / "ca.crt")
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
            writer.write(b"GET /docs HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 404 \r\n"
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(30):
                code = await process.wait()
            writer.close()
            return code

    # In a thread of its own: a browser's session in this process keeps this thread's loop.
    with ThreadPoolExecutor(1) as apart:
        assert apart.submit(lambda: asyncio.run(watch())).result() == 0
    lines = log.read_text().splitlines()
    assert lines[0].startswith(f"gateway on 127.0.0.1:{port}; the Fleet API of the SuperLink on 127.0.0.1:")
    assert lines[1:] == ["refused 127.0.0.1: b'GET' b'/docs'"]
