from collections.abc import Callable, Iterator
from subprocess import CompletedProcess

import click
import pytest
from typer.core import TyperArgument
from typer.main import get_command

from fedfeast.app.cli import app

Command = Callable[..., CompletedProcess[str]]


def commands_of(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name, one in command.commands.items():
            yield from commands_of(one, (*words, name))
    else:
        yield words, command


COMMANDS = dict(commands_of(get_command(app)))


def test_square_brackets_stay(fedfeast: Command) -> None:
    assert "needs fedfeast[flower]." in fedfeast("fleet", "--help").stdout
    assert "without them the recipe's [variants]." in fedfeast("search", "--help").stdout


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_argument_and_option_is_described(words: tuple[str, ...]) -> None:
    for parameter in COMMANDS[words].params:
        assert isinstance(parameter, TyperArgument | click.Option)
        assert parameter.help, f"{words}: {parameter.name}"


def test_a_recipe_and_a_folder_are_described_where_help_is_shown(fedfeast: Command) -> None:
    assert "A shipped recipe, such as digits" in fedfeast("train", "--help").stdout
    assert "A run's folder: what train was given as --out" in fedfeast("evaluate", "--help").stdout


@pytest.mark.parametrize("words", [(), ("train",), ("fleet",), ("data", "prepare")])
def test_help_has_a_short_name(fedfeast: Command, words: tuple[str, ...]) -> None:
    short = fedfeast(*words, "-h")
    assert (short.returncode, short.stderr) == (0, "")
    assert short.stdout == fedfeast(*words, "--help").stdout


@pytest.mark.parametrize(("words", "meant"), [(["trian", "digits"], "train"), (["fleet", "kye"], "key")])
def test_a_typo_is_answered_once(fedfeast: Command, words: list[str], meant: str) -> None:
    done = fedfeast(*words)
    assert done.returncode == 2
    assert done.stderr.count("Did you mean") == 1
    assert f"Did you mean '{meant}'?" in done.stderr
    assert "No such command 'zzz'." in fedfeast("zzz").stderr
