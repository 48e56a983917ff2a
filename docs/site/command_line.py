"""Every command as Markdown, from what --help is made of."""

from collections.abc import Iterator
from typing import Any

import click
import typer
from markup import cell, heading, table

from fedfeast.app.cli import app


def command_line() -> str:
    """Return all commands, in the order of --help."""
    return "\n\n".join(part for words, command in commands() for part in _describe(words, command))


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with the words that call it, those of groups included."""
    top = typer.main.get_command(app)
    assert isinstance(top, click.Group)
    for name, command in _in_order_of_help(top):
        if isinstance(command, click.Group):
            yield from ((f"fedfeast {name} {inner}", one) for inner, one in command.commands.items())
        else:
            yield f"fedfeast {name}", command


def _in_order_of_help(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    return ((name, group.commands[name]) for name in group.list_commands(click.Context(group)))


def _describe(words: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=words)
    yield heading(2, f"`{words}`")
    yield cell(command.help or "")
    yield f"```text\n{' '.join([words, *command.collect_usage_pieces(context)])}\n```"
    rows = [_row(parameter, context) for parameter in command.params if not getattr(parameter, "hidden", False)]
    if rows:
        yield table(("argument or option", "value", "default", "meaning"), rows)


def _row(parameter: click.Parameter, context: click.Context) -> tuple[str, str, str, str]:
    is_option = isinstance(parameter, click.Option)
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    name = names if is_option else f"`{parameter.make_metavar(context)}`"
    value = "" if getattr(parameter, "is_flag", False) else parameter.type.name
    several = ", may be repeated" if parameter.multiple or parameter.nargs == -1 else ""
    variable = f" (environment: `{parameter.envvar}`)" if parameter.envvar else ""
    said: Any = getattr(parameter, "help", None) or ""
    return name, f"{value}{several}", _default(parameter), cell(said) + variable


def _default(parameter: click.Parameter) -> str:
    if parameter.required:
        return "required"
    default = parameter.default
    return f"`{default}`" if isinstance(default, str | int | float) and default is not False else ""
