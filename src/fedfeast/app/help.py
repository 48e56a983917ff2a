"""How commands describe themselves: help texts as they were written, and one answer to a mistyped name."""

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

import click
from rich.markup import escape
from typer.core import TyperArgument, TyperGroup
from typer.models import ArgumentInfo

HELP_OPTIONS = {"help_option_names": ["--help", "-h"]}


class Commands(TyperGroup):
    """A group of commands, or of such groups."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for command in self.commands.values():
            _describe_arguments(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant; say once what a mistyped one may be, which click and typer both would."""
        known = self.get_command(ctx, args[0])
        if known is not None or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        near = get_close_matches(args[0], self.list_commands(ctx), n=1)
        ctx.fail(f"No such command {args[0]!r}.{f' Did you mean {near[0]!r}?' if near else ''}")

    def main(self, *args: Any, **options: Any) -> Any:
        """Run the command line, with help texts that rich shows as they are, square brackets included."""
        for command in _all_of(self):
            command.help = escape(command.help or "")
            for parameter in command.params:
                if isinstance(parameter, click.Option | TyperArgument):
                    parameter.help = escape(parameter.help or "")
        return super().main(*args, **options)


def _all_of(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for one in command.commands.values():
            yield from _all_of(one)


def _describe_arguments(command: click.Command) -> None:
    """Give arguments the descriptions of their functions: typer 0.20 loses them with click from 8.4 on."""
    if command.callback is None:
        return
    declared = inspect.signature(command.callback).parameters
    for parameter in command.params:
        if isinstance(parameter, TyperArgument) and not parameter.help and parameter.name in declared:
            noted = get_args(declared[parameter.name].annotation)  # Annotated[type, what typer is told]
            parameter.help = next((one.help for one in noted if isinstance(one, ArgumentInfo)), None)
