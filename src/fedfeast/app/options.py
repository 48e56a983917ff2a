"""The arguments and options that several commands take."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fedfeast.errors import InvalidInput

RecipeArgument = Annotated[str, typer.Argument(help="A shipped recipe (digits, cifar100-paper, ...) or a TOML file.")]
RunArgument = Annotated[Path, typer.Argument(help="A run's folder.")]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a field of the recipe; may be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


def parse_numbers(option: str, text: str) -> list[float]:
    """Read a list of numbers like 25e6,50e6."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{option} {text!r} is no list of numbers: write it like 25e6,50e6.") from None


def setting_words(settings: Sequence[str]) -> list[str]:
    """Return the words of a command line that give these settings."""
    return [word for setting in settings for word in ("--set", setting)]
