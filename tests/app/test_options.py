"""Code that a run folder or a recipe names: commands that open one refuse it, run it with --trust, or know it."""

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from subprocess import CompletedProcess

import pytest
from tiny import TINY, as_words

from fedfeast.app.options import trust_words
from fedfeast.own_code import _Permissions, trusting
from fedfeast.server.collection import Collection

Command = Callable[..., CompletedProcess[str]]
PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"
# The words of each command that opens a run's folder or its recipe; NEW is a place to write to.
OPENING = {
    "report": ["report", "RUN", "--out", "NEW/report.html"],
    "evaluate": ["evaluate", "RUN"],
    "extract": ["extract", "RUN", "--max-macs", "1e9", "--out", "NEW/bundle"],
    "export": ["export", "RUN", "--max-macs", "1e9", "--format", "pt2", "--out", "NEW/model.pt2"],
    "latency": ["latency", "RUN", "--threads", "1", "--repeats", "1"],
    "plan": ["plan", "RUN/recipe.toml"],
    "measure": ["measure", "RUN/recipe.toml", "--variants", "2", "--threads", "1"],
    "methods": ["methods", "--recipe", "RUN/recipe.toml"],
    "search": ["search", "RUN/recipe.toml", "--targets", "2e5", "--out", "NEW/cache.csv"],
    "train": ["train", "RUN/recipe.toml", "--out", "RUN"],
}


@pytest.fixture(scope="module")
def own_run(fedfeast: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that this machine trained with a method of its own, which leaves a file behind when it is imported."""
    folder = tmp_path_factory.mktemp("own")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "mine.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n{code}")
    method = {"method.name": f"{folder / 'mine.py'}:NarrowOrWhole", "training.rounds": 1}
    with pytest.MonkeyPatch.context() as machine:
        machine.setenv("FEDFEAST_HOME", str(folder / "home"))
        machine.setattr("fedfeast.own_code._PERMISSIONS", _Permissions())
        done = fedfeast("train", "digits", "--out", folder / "run", *as_words({**TINY, **method}))
    assert done.returncode == 0, done.stderr
    assert list(json.loads((folder / "home" / "trusted.json").read_text()).values()) == [str(folder / "mine.py")]
    (folder / "ran").unlink()
    return folder


@pytest.fixture
def theirs(own_run: Path, another_machine: None) -> Path:
    """The same run on a machine that never saw it."""
    (own_run / "ran").unlink(missing_ok=True)
    return own_run / "run"


@pytest.fixture
def words_for(tmp_path: Path) -> Callable[[str, Path], list[str]]:
    return lambda name, run: [word.replace("RUN", str(run)).replace("NEW", str(tmp_path)) for word in OPENING[name]]


@pytest.mark.parametrize("words", [*OPENING.values(), ["serve", "RUN", "--port", "0"]], ids=lambda words: words[0])
def test_a_folder_from_elsewhere_runs_nothing(
    words: list[str], theirs: Path, tmp_path: Path, refused: Callable[..., None]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in theirs.rglob("*")}
    named = f"{theirs.parent / 'mine.py'}:NarrowOrWhole"
    refused(
        f"recipe {theirs / 'recipe.toml'} names code to run, method.name = {named!r}, and {theirs.parent / 'mine.py'} "
        f"was not trusted on this machine before: read it, then add --trust",
        *(word.replace("RUN", str(theirs)).replace("NEW", str(tmp_path)) for word in words),
    )
    assert not (theirs.parent / "ran").exists()
    assert {path: path.stat().st_mtime_ns for path in theirs.rglob("*")} == before
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("name", OPENING)
def test_it_is_opened_with_trust_for_this_command_alone(
    name: str,
    theirs: Path,
    fedfeast: Command,
    new_process: Callable[[], None],
    words_for: Callable[[str, Path], list[str]],
) -> None:
    done = fedfeast(*words_for(name, theirs), "--trust")
    assert done.returncode == 0, done.stderr
    assert (theirs.parent / "ran").exists()
    new_process()
    again = fedfeast("plan", theirs / "recipe.toml")
    assert again.returncode == (0 if name == "train" else 2), again.stderr  # what was trained here is remembered


@pytest.mark.usefixtures("hurried", "another_machine")
@pytest.mark.parametrize("name", OPENING)
def test_the_machine_that_trained_it_needs_no_flag(
    name: str,
    own_run: Path,
    fedfeast: Command,
    monkeypatch: pytest.MonkeyPatch,
    words_for: Callable[[str, Path], list[str]],
) -> None:
    monkeypatch.setenv("FEDFEAST_HOME", str(own_run / "home"))
    done = fedfeast(*words_for(name, own_run / "run"))
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("another_machine")
def test_a_file_that_changed_is_no_longer_trusted(
    own_run: Path, tmp_path: Path, refused: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDFEAST_HOME", str(own_run / "home"))
    run, file = copytree(own_run / "run", tmp_path / "run"), own_run / "mine.py"
    original, marker = file.read_text(), own_run / "ran"
    marker.unlink(missing_ok=True)
    try:
        file.write_text(original + "# changed\n")
        refused(f"{file} has changed since it was trusted: read it, then add --trust", "report", run)
        assert not marker.exists()
    finally:
        file.write_text(original)


@pytest.mark.usefixtures("hurried")
def test_who_names_it_on_the_command_line_needs_no_flag(theirs: Path, fedfeast: Command) -> None:
    setting = f"method.name={theirs.parent / 'mine.py'}:NarrowOrWhole"
    done = fedfeast("plan", theirs / "recipe.toml", "--set", setting)
    assert done.returncode == 0, done.stderr


def test_a_server_opens_trusted_runs_in_any_thread(theirs: Path) -> None:
    with trusting():
        collection = Collection([theirs])
    watched: list[str] = []
    looking = threading.Thread(target=lambda: watched.extend(run.seen.about.method for run in collection.runs.values()))
    looking.start()
    looking.join()
    assert watched == [f"{theirs.parent / 'mine.py'}:NarrowOrWhole"]


def test_the_words_that_go_on() -> None:
    assert (trust_words(True), trust_words(False)) == (["--trust"], [])
