"""The commands of the pages that a new user reads, typed one after the other in one folder."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from subprocess import CompletedProcess

import pytest

PAGES = ("README.md", "docs/commands.md", "docs/deploy.md")
OF_RUNS = ("evaluate", "extract", "export", "verify", "latency", "report")  # those that read what was trained
Command = Callable[..., CompletedProcess[str]]


def documented_commands() -> list[list[str]]:
    pages = (Path(__file__).parents[2] / page for page in PAGES)
    blocks = (block for page in pages for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL))
    lines = dict.fromkeys(line for block in blocks for line in block.splitlines() if line.startswith("fedfeast "))
    commands = dict.fromkeys(tuple(shlex.split(line, comments=True)[1:]) for line in lines)
    return [list(words) for words in commands]


def test_each_command_on_a_run_works_after_those_before_it(
    fedfeast: Command, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "other"):
        copytree(trained, tmp_path / "runs" / name)
    typed = [words for words in documented_commands() if words[0] in OF_RUNS]
    assert {words[0] for words in typed} == set(OF_RUNS)
    for words in typed:
        done = fedfeast(*words)
        assert done.returncode == 0, f"{words}: {done.stderr}"
    for words in typed:
        if words[0] in ("export", "extract"):
            assert "--force" in fedfeast(*words).stderr, words
    again = next(words for words in typed if words[0] == "export")
    assert fedfeast(*again, "--force").returncode == 0


def test_each_run_that_a_page_names_was_trained_before() -> None:
    trained: set[str] = set()
    for words in documented_commands():
        if words[0] == "train":
            trained.add(words[words.index("--out") + 1] if "--out" in words else f"runs/{Path(words[1]).name}")
        else:
            named = {word for word in words if word.startswith("runs/")}
            assert named <= trained, words
