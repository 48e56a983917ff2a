"""The commands under ``fedfeast data``: what is there, prepare it, fetch it."""

import json
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

data_app = typer.Typer(
    name="data", help="List, prepare and fetch data sets.", no_args_is_help=True, pretty_exceptions_enable=False
)

NameArgument = Annotated[str, typer.Argument(help="cifar10, cifar100, cinic10, tinyimagenet, fashion-mnist.")]
FolderOption = Annotated[
    Path | None, typer.Option(help="The data folder; $FEDFEAST_DATA or ~/.fedfeast/data by default.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


@data_app.command("list")
def list_command(folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Show every data set: its size, whether it is here, and what it would need."""
    from fedfeast.data import list_data

    rows = list_data(folder)
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(title="data sets")
    for heading in ("name", "classes", "image", "train", "test", "server", "state"):
        table.add_column(heading, justify="left" if heading in ("name", "state") else "right")
    for row in rows:
        table.add_row(*_cells(row))
    console = Console()
    console.print(table)
    for row in rows:
        if row["needs"] != "nothing":
            console.print(f"{row['name']}: {row['needs']}", highlight=False, markup=False, soft_wrap=True)


@data_app.command()
def prepare(  # noqa: PLR0913 - each argument is an option of the command
    name: Annotated[str, typer.Argument(help="An official data set, or a new name for your own images.")],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Official files or archive; or a folder of CLASS/IMAGES or {train,test}/CLASS/IMAGES."
        ),
    ] = None,
    size: Annotated[int | None, typer.Option(help="Crop and resize all images to SIZE x SIZE.")] = None,
    test_share: Annotated[
        float | None, typer.Option(help="The share of each class held out as the test set; 0.2 by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides which images are held out.")] = 0,
    replace: Annotated[bool, typer.Option("--replace", help="Prepare again what is prepared already.")] = False,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decode a data set once; recipes then say data.name = NAME."""
    from fedfeast.data import ImageOptions, prepare_data

    options = ImageOptions(size, test_share, seed)
    with _Bar(as_json) as bar:
        content = prepare_data(
            name, source, folder, options, replace, lambda done, total: bar.show("decoding", done, total)
        )
    _present(content, as_json)


@data_app.command()
def fetch(name: NameArgument, folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Download an official data set from its publisher, check it and prepare it; go on where a try broke off."""
    from fedfeast.data import fetch_data

    with _Bar(as_json) as bar:
        content = fetch_data(name, folder, bar.show)
    _present(content, as_json)


class _Bar:
    """One progress bar for each kind of work, on a terminal alone."""

    def __init__(self, as_json: bool) -> None:
        console = Console(stderr=as_json)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        self._progress = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, what: str, done: int, total: int) -> None:
        """Show how much of a piece of work is done."""
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(escape(what), total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)


def _present(content: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(content, indent=2))
        return
    examples = ", ".join(f"{count:,} {split}" for split, count in content["examples"].items())
    image = f"{content['side']} x {content['side']} {'grey' if content['channels'] == 1 else 'colour'}"
    line = f"{content['name']} is prepared: {content['classes']} classes, {image} images, {examples}."
    Console().print(
        f"{line}\nUse it with --set data.name={content['name']}", highlight=False, markup=False, soft_wrap=True
    )


def _cells(row: dict[str, Any]) -> list[str]:
    counts = [row[f"{split}_examples"] for split in ("train", "test", "server")]
    if row["classes"] is None:
        return [escape(row["name"]), "", "", "", "", "", row["state"]]
    image = f"{row['side']} x {row['side']} x {row['channels']}"
    return [
        escape(row["name"]),
        str(row["classes"]),
        image,
        *(f"{count:,}" if count else "" for count in counts),
        row["state"],
    ]
