"""The arguments and options that several commands take."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedfeast.errors import InvalidInput
from fedfeast.own_code import trusting

RecipeArgument = Annotated[
    str, typer.Argument(help="A shipped recipe, such as digits (recipes list shows them all), or a TOML file's path.")
]
RunArgument = Annotated[Path, typer.Argument(help="A run's folder: what train was given as --out, e.g. runs/digits.")]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a field of the recipe; may be repeated."),
]
TrackOption = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="NAME[=WHERE]",
        help="Also tell tensorboard[=FOLDER], mlflow[=URI] or wandb[=PROJECT]; may be repeated.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


def _trust(context: typer.Context, given: bool) -> bool:
    """Trust all code that the command comes across until it ends; the command itself need not look at the option."""
    if given:
        context.with_resource(trusting())
    return given


TrustOption = Annotated[
    bool,
    typer.Option("--trust", callback=_trust, help="Run code that the recipe or run folder names; read it first."),
]


def parse_numbers(option: str, text: str) -> list[float]:
    """Read a list of numbers like 25e6,50e6."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{option} {text!r} is no list of numbers: write it like 25e6,50e6.") from None


def setting_words(settings: Sequence[str]) -> list[str]:
    """Return the words of a command line that give these settings."""
    return [word for setting in settings for word in ("--set", setting)]


def track_words(track: Sequence[str]) -> list[str]:
    """Return the words of a command line that name these trackers."""
    return [word for tracker in track for word in ("--track", tracker)]


def trust_words(trust: bool) -> list[str]:
    """Return the words of a command line that trusts code, or does not."""
    return ["--trust"] if trust else []
