import sys
from pathlib import Path

import pytest

# Typer's own import of Click warns; other tests of commands leave that to a second process.
pytestmark = pytest.mark.filterwarnings("ignore:'click.*:DeprecationWarning")


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_who_can_reach_an_address(host: str, expected: bool) -> None:
    from fedfeast.app.serve_command import is_loopback

    assert is_loopback(host) == expected


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["FOLDER"], "is no run folder (it has no recipe.toml)"),
        (["FOLDER", "--port", "99999"], "--port 99999: give a number from 0"),
        (["FOLDER", "--token", ""], "--token must be printable"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from fedfeast.app.cli import main

    port = [] if "--port" in words else ["--port", "0"]
    monkeypatch.setattr(sys, "argv", ["fedfeast", "serve", *(w.replace("FOLDER", str(tmp_path)) for w in words), *port])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_everyone_being_able_to_fetch_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedfeast.app.cli import main

    monkeypatch.setattr(sys, "argv", ["fedfeast", "serve", str(tmp_path), "--host", "0.0.0.0", "--port", "0"])
    with pytest.raises(SystemExit):
        main()
    assert "everyone who reaches 0.0.0.0 can fetch the models: --token keeps others out." in capsys.readouterr().err
