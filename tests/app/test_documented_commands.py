"""The commands of the pages that a new user reads, typed one after the other in one folder."""

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree
from subprocess import CompletedProcess

import click
import pytest
import typer
from recipe_fields import field_names

from fedfeast.app.cli import app

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/commands.md", "docs/deploy.md")
OF_RUNS = ("evaluate", "extract", "export", "verify", "latency", "report")  # those that read what was trained
Command = Callable[..., CompletedProcess[str]]


def documented_commands() -> list[list[str]]:
    pages = (ROOT / page for page in PAGES)
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


def commands_of_blocks(text: str) -> Iterator[list[str]]:
    """Yield every call of fedfeast in a page's blocks of commands and in its manifests."""
    for block in re.findall(r"```(?:sh|bash)\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            called = re.search(r"(?:^|\s)fedfeast ([a-z].*)", line.partition(" # ")[0].removesuffix(" &"))
            if called is not None and not line.startswith("#"):
                yield shlex.split(called[1])
    for listed in re.findall(r'\["fedfeast", (.*)\]', text):
        yield [word.strip('" ') for word in listed.split(",")]


def commands_in_sentences(text: str) -> Iterator[list[str]]:
    """Yield what a page's sentences say of fedfeast's commands, whole ones and such as ``fedfeast evaluate``."""
    for inline in re.findall(r"`fedfeast ([a-z][^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if "..." not in inline:
            yield shlex.split(inline)


def parsed(words: list[str]) -> click.Context:
    """Return what the command line makes of words, without doing it."""
    command: click.Command = typer.main.get_command(app)
    context = click.Context(command, info_name="fedfeast")
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context)
    return command.make_context(context.info_name, words, parent=context.parent)


def complaint(words: list[str]) -> str:
    """Say what is wrong with a command line; nothing where it would run."""
    try:
        settings = parsed(words).params.get("settings") or []
    except click.UsageError as error:
        return error.format_message()
    unknown = {setting.partition("=")[0] for setting in settings} - field_names() - {"SECTION.KEY"}
    return f"no such field of a recipe: {', '.join(unknown)}" if unknown else ""


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{one.name}" for one in (ROOT / "docs").glob("*.md"))])
def test_the_command_line_takes_each_command_of_a_page(page: str) -> None:
    text = (ROOT / page).read_text()
    whole = [(words, complaint(words)) for words in commands_of_blocks(text)]
    named = [(words, complaint(words)) for words in commands_in_sentences(text)]
    assert [one for one in whole if one[1]] == []
    assert [one for one in named if "no such" in one[1].lower()] == []


def test_an_option_that_does_not_exist_is_noticed() -> None:
    assert "No such option" in complaint(["train", "digits", "--lader", "4"])
    assert "No such command" in complaint(["tain", "digits"])
    assert "training.round" in complaint(["train", "digits", "--set", "training.round=4"])


def test_batch_scripts_are_bash() -> None:
    scripts = re.findall(r"```bash\n(.*?)```", (ROOT / "docs/slurm.md").read_text(), re.DOTALL)
    assert len(scripts) >= 4
    for script in scripts:
        subprocess.run(["bash", "-n"], input=script, text=True, check=True, capture_output=True)


def test_the_tutorial_leads_where_it_says(
    fedfeast: Command, short: list[str], hurried: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/tutorial.md").read_text()
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    typed = [shlex.split(line)[1:] for line in blocks.splitlines() if line.startswith("fedfeast ")]
    assert [words[0] for words in typed][-1] == "serve"
    for words in typed[:-1]:
        done = fedfeast(*words, *(short if words[0] == "train" else []))
        assert done.returncode == 0, f"{words}: {done.stderr}"
    assert (tmp_path / "runs/first/report.html").is_file()
    assert (tmp_path / "compared.html").is_file()
