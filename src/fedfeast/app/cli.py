"""The command line."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedfeast.errors import InvalidInput

if TYPE_CHECKING:
    from fedfeast.runs import Run

app = typer.Typer(
    name="fedfeast",
    help="Train one elastic network over a fleet of unequal devices; serve each the largest model it affords.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a field of the recipe; may be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Handle what stands before a command."""
    if version:
        from importlib.metadata import version as installed_version

        print(installed_version("fedfeast"))
        raise typer.Exit


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe (digits, cifar100-paper, ...) or a TOML file.")],
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/RECIPE by default.")] = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a recipe; where the folder holds an unfinished run of it, go on from its last checkpoint."""
    from fedfeast.app.progress import LiveProgress
    from fedfeast.runs import Interrupted, Run

    run = Run.create(recipe, out, settings or [])
    try:
        with LiveProgress(_console(as_json)) as progress:
            run.train(progress)
    except Interrupted as stop:
        again = shlex.join(
            ["fedfeast", "train", recipe]
            + ["--out", str(run.folder.path)]
            + [word for setting in settings or [] for word in ("--set", setting)]
        )
        _errors().print(
            f"Stopped after round {stop.finished_rounds} of {run.recipe.training.rounds}; all of it is saved. "
            f"Go on with:\n  {again}",
            soft_wrap=True,
            highlight=False,
        )
        raise typer.Exit(130) from None
    _present(run, as_json)


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")],
    against: Annotated[Path | None, typer.Option(help="Another run to count client wins against.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure every operating point of a run's best checkpoint on the test set."""
    from fedfeast.app.progress import LiveProgress
    from fedfeast.runs import Run

    run = Run.open(folder)
    other = Run.open(against) if against is not None else None
    if other is not None:
        other.summary  # noqa: B018 - fails early where the other run has none
    with LiveProgress(_console(as_json)) as progress:
        run.evaluate(progress)
    _present(run, as_json, other)


def _present(run: "Run", as_json: bool, other: "Run | None" = None) -> None:
    from fedfeast.app.pictures import draw_curves
    from fedfeast.app.tables import print_summary

    picture = run.folder.path / "curve.png"
    draw_curves([run], picture)
    draw_curves([run], picture.with_suffix(".svg"))
    wins = run.client_wins(other) if other is not None else None
    if as_json:
        content: dict[str, Any] = {**run.summary, "picture": str(picture)}
        if wins is not None:
            content["client_wins"] = {"wins": wins.wins, "ties": wins.ties, "losses": wins.losses}
        print(json.dumps(content, indent=2))
    else:
        print_summary(run, picture, wins, _console(as_json))


def _console(as_json: bool) -> Console:
    """Return where people read: standard error when standard output carries JSON."""
    return Console(stderr=as_json)


def _errors() -> Console:
    return Console(stderr=True)


def main() -> None:
    """Run the command line; bad input ends in one sentence and exit code 2."""
    try:
        app()
    except InvalidInput as error:
        _errors().print(f"[bold red]error:[/] {_escaped(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(2)
    except OSError as error:
        _errors().print(f"[bold red]error:[/] {_escaped(str(error))}", soft_wrap=True, highlight=False)
        sys.exit(1)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
