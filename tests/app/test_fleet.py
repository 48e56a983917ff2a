"""The demonstration itself is `make fleet-demo`; tests/integration drives the same fleet of processes."""

import socket
import stat
from pathlib import Path

import pytest
from rich.console import Console

from fedfeast.app import fleet
from fedfeast.errors import InvalidInput
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method


def test_credentials_are_made_where_they_are_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.certificate(["localhost"], tmp_path / "credentials")
    fleet.key("kitchen", tmp_path / "keys")
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} == {
        "ca.crt",
        "server.pem",
        "server.key",
        "kitchen",
        "kitchen.pub",
    }
    assert stat.S_IMODE((tmp_path / "keys" / "kitchen").stat().st_mode) == 0o600
    said = capsys.readouterr().out
    assert "for the server alone" in said
    assert "kitchen.pub" in said


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
