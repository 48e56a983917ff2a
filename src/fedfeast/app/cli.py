"""The command line: every command by its name."""

import sys
from typing import Annotated

import typer

from fedfeast.app.data import data_app
from fedfeast.app.fleet import fleet_app
from fedfeast.app.help import HELP_OPTIONS, Commands
from fedfeast.app.models import browser_runtime, export, extract, latency, serve, verify
from fedfeast.app.output import print_error
from fedfeast.app.plan import check_method, measure, methods, plan, search
from fedfeast.app.recipes import recipes_app
from fedfeast.app.studies import study
from fedfeast.app.train import evaluate, report, train
from fedfeast.errors import InvalidInput
from fedfeast.version import VERSION

# Their order is that of --help.
COMMANDS = (
    *(train, evaluate, plan, measure, methods, check_method, search),
    *(extract, export, verify, latency, serve, browser_runtime, report, study),
)

app = typer.Typer(
    name="fedfeast",
    help="Train one elastic network over a fleet of unequal devices; serve each the largest model it affords.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    cls=Commands,
    context_settings=HELP_OPTIONS,
)
app.add_typer(recipes_app)
app.add_typer(data_app)
app.add_typer(fleet_app)
for command in COMMANDS:
    app.command()(command)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Handle what stands before a command."""
    if version:
        print(VERSION)
        raise typer.Exit


def main() -> None:
    """Run the command line; bad input ends in one sentence and exit code 2."""
    try:
        app()
    except InvalidInput as error:
        print_error(error)
        sys.exit(2)
    except OSError as error:
        print_error(error)
        sys.exit(1)
