"""The command line in this process, as main() runs it: a process for each command would spend seconds on torch."""

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from shutil import copytree
from subprocess import CompletedProcess

import pytest

from fedfeast.app.cli import main
from fedfeast.stopwatch import Repeats

Command = Callable[..., CompletedProcess[str]]
SHORT = ("training.rounds=2", "training.clients_per_round=2", "evaluation.every_rounds=1")


def call(*words: str | Path) -> CompletedProcess[str]:
    """Run a command line to its end and return its exit code with what it wrote."""
    command, out, err = ["fedfeast", *map(str, words)], io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as terminal, redirect_stdout(out), redirect_stderr(err):
        terminal.setattr(sys, "argv", command)
        terminal.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as stop:
            main()
    assert isinstance(stop.value.code, int)
    return CompletedProcess(command, stop.value.code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def fedfeast() -> Command:
    """Runs a command line and returns its exit code and what it wrote."""
    return call


@pytest.fixture(scope="session")
def refused() -> Callable[..., None]:
    """Checks that a command line ends with exit code 2 and one sentence, which says what is expected."""

    def check(sentence: str, *words: str | Path) -> None:
        done = call(*words)
        assert done.returncode == 2, done.stdout
        assert sentence in done.stderr
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""

    return check


@pytest.fixture(scope="session")
def short() -> list[str]:
    """The settings of the trained run, as words of a command line."""
    return [word for setting in SHORT for word in ("--set", setting)]


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory, short: list[str]) -> CompletedProcess[str]:
    """The command that trained the run; its words name the folder."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    return call("train", "digits", "--out", out, *short)


@pytest.fixture(scope="session")
def trained(training: CompletedProcess[str]) -> Path:
    """A finished run of the digits; no test changes it."""
    assert training.returncode == 0, training.stderr
    return Path(training.args[training.args.index("--out") + 1])


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans time two passes of a network: enough to see that there is a time."""
    monkeypatch.setattr("fedfeast.planning.timing.MEASURED", Repeats(most=2, least=2))


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to be changed."""
    return Path(copytree(trained, tmp_path / "run"))
