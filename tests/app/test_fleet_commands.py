import stat
from pathlib import Path

import pytest

from fedfeast.app import fleet_commands
from fedfeast.errors import InvalidInput


def test_credentials_are_made_where_they_are_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet_commands.certificate(["localhost"], tmp_path / "credentials")
    fleet_commands.key("kitchen", tmp_path / "keys")
    assert {file.name for file in tmp_path.rglob("*") if file.is_file()} == {
        "ca.crt",
        "server.pem",
        "server.key",
        "kitchen",
        "kitchen.pub",
    }
    assert stat.S_IMODE((tmp_path / "keys" / "kitchen").stat().st_mode) == 0o600
    said = capsys.readouterr().out
    assert "for the SuperLink alone" in said
    assert "kitchen.pub" in said


def test_a_demo_needs_the_app(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no Flower app"):
        fleet_commands.demo(tmp_path / "run", 1, tmp_path)


def test_without_flower_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"pip install 'fedfeast\[flower\]'"):
        fleet_commands.key("kitchen", tmp_path)
