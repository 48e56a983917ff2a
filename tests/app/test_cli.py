import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedfeast.app.options import parse_numbers, setting_words
from fedfeast.app.output import print_error, print_result
from fedfeast.errors import InvalidInput

Command = Callable[..., "subprocess.CompletedProcess[str]"]
SOURCE = Path(__file__).parents[2] / "src"
# What Python runs at its start where this file lies on its path.
NEVER_INSTALLED = """
from importlib.metadata import Distribution

discover = Distribution.discover
Distribution.discover = staticmethod(lambda **wanted: (one for one in discover(**wanted) if one.name != "fedfeast"))
"""


def process(*words: str | Path) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_loads_no_torch() -> None:
    code = (
        "import sys, contextlib\n"
        "from fedfeast.app.cli import app\n"
        "with contextlib.suppress(SystemExit): app(['--help'])\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'matplotlib', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    assert "train" in process(sys.executable, "-c", code)


def test_the_installed_script() -> None:
    script = shutil.which("fedfeast", path=str(Path(sys.executable).parent))
    assert script is not None, "fedfeast is not installed beside this Python: make setup"
    assert process(script, "--version") == "0.1.0\n"


def test_a_source_tree_runs_without_an_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Path(shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("*.egg-info")))
    (tree / "sitecustomize.py").write_text(NEVER_INSTALLED)
    monkeypatch.setenv("PYTHONPATH", str(tree))
    monkeypatch.chdir(tmp_path)
    look = (
        "from importlib.metadata import distributions\n"
        "assert 'fedfeast' not in {one.name for one in distributions()}\n"
        "import fedfeast; print(fedfeast.__file__)\n"
    )
    assert process(sys.executable, "-c", look) == f"{tree / 'fedfeast' / '__init__.py'}\n"
    module = (sys.executable, "-m", "fedfeast")
    assert process(*module, "--version") == "0.1.0\n"
    short = ("--set", "training.rounds=1", "--set", "training.clients_per_round=1")
    assert "population score" in process(*module, "train", "digits", "--out", "run", *short)
    assert (tmp_path / "run" / "curve.png").is_file()


def test_the_version_and_no_command(fedfeast: Command) -> None:
    assert fedfeast("--version").stdout == "0.1.0\n"
    assert "train" in fedfeast().stdout
    assert fedfeast().returncode == 2


def test_what_the_system_refuses_is_said_and_ends_with_1(fedfeast: Command, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = fedfeast("report", trained, "--out", tmp_path / "file" / "report.html")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_an_error_is_one_sentence_brackets_included(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(InvalidInput("stages = [1, 2] is too short: " + "give more " * 30))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: stages = [1, 2] is too short")
    assert printed.err.count("\n") == 1


def test_a_result_is_for_programs_or_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    line = "a[/b] " * 40
    print_result({"a": 1}, [line], as_json=True)
    assert capsys.readouterr().out == '{\n  "a": 1\n}\n'
    print_result({"a": 1}, [line, "end"], as_json=False)
    assert capsys.readouterr().out == f"{line}\nend\n"


def test_lists_of_numbers_and_settings() -> None:
    assert parse_numbers("--targets", "2e5, 1000") == [2e5, 1000]
    with pytest.raises(InvalidInput, match="--targets '1e6,much' is no list of numbers: write it like 25e6,50e6"):
        parse_numbers("--targets", "1e6,much")
    assert setting_words(["a.b=c", "d=e"]) == ["--set", "a.b=c", "--set", "d=e"]
