"""The commands under ``fedfeast data``: what is there, prepare it, fetch it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfeast.app.help import Commands
from fedfeast.app.options import JsonOption
from fedfeast.app.output import console_for, print_result

data_app = typer.Typer(
    name="data",
    help="List, prepare and fetch data sets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=Commands,
)

NameArgument = Annotated[str, typer.Argument(help="cifar10, cifar100, cinic10, tinyimagenet, fashion-mnist.")]
FolderOption = Annotated[
    Path | None, typer.Option(help="The data folder; $FEDFEAST_DATA or ~/.fedfeast/data by default.")
]


@data_app.command("list")
def list_command(folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Show every data set: its size, whether it is here, and what it would need."""
    from fedfeast.data import list_data
    from fedfeast.presentation.tables import describe_data

    rows = list_data(folder)
    print_result(rows, describe_data(rows), as_json)


@data_app.command()
def prepare(  # noqa: PLR0913 - each argument is an option of the command
    name: Annotated[str, typer.Argument(help="An official data set, or a new name for your own data.")],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Official files or archive; or your own: an npz file, a csv file, "
            "a folder of CLASS/IMAGES, {train,test}/CLASS/IMAGES or CLIENT/CLASS/IMAGES.",
        ),
    ] = None,
    clients: Annotated[
        str | None, typer.Option(help="Whose each example is: a column or array; 'folder' for CLIENT/CLASS/IMAGES.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="The column or array of labels, several columns with commas; 'labels' by default."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="classification (default), next-token, multi-label or regression."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="images, numbers or tokens; told by the look of the inputs by default.")
    ] = None,
    test: Annotated[str | None, typer.Option(help="The column or array that marks the test examples.")] = None,
    size: Annotated[int | None, typer.Option(help="Crop and resize all images to SIZE x SIZE.")] = None,
    test_share: Annotated[
        float | None, typer.Option(help="The share of each client or class held out as the test set; 0.2 by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides which examples are held out.")] = 0,
    replace: Annotated[bool, typer.Option("--replace", help="Prepare again what is prepared already.")] = False,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decode a data set once; recipes then say data.name = NAME."""
    from fedfeast.app.progress import ShareProgress
    from fedfeast.data import PrepareOptions, prepare_data

    options = PrepareOptions(size, test_share, seed, clients, labels, test, task, kind)
    with ShareProgress(console_for(as_json)) as bar:
        content = prepare_data(
            name, source, folder, options, replace, lambda done, total: bar.show("decoding", done, total)
        )
    _present(content, as_json)


@data_app.command()
def fetch(name: NameArgument, folder: FolderOption = None, as_json: JsonOption = False) -> None:
    """Download an official data set from its publisher, check it and prepare it; go on where a try broke off."""
    from fedfeast.app.progress import ShareProgress
    from fedfeast.data import fetch_data

    with ShareProgress(console_for(as_json)) as bar:
        content = fetch_data(name, folder, bar.show)
    _present(content, as_json)


def _present(content: dict[str, Any], as_json: bool) -> None:
    told = tell_prepared(content)
    told.insert(1, f"Use it with --set data.name={content['name']}")
    if "licence" in content:
        told.append(f"Licence: {content['licence']}. Please cite: {content['citation']}.")
    print_result(content, list(told), as_json)


def tell_prepared(content: Mapping[str, Any]) -> list[str]:
    """Return a line on what was prepared, then what was skipped."""
    from fedfeast.data.reading.prepared import facts_in
    from fedfeast.presentation.tables import example_in_words, outputs_in_words

    facts = facts_in(content)
    examples = ", ".join(f"{count:,} {split}" for split, count in facts.examples.items())
    clients = f", {facts.clients:,} clients" if facts.clients else ""
    line = f"{content['name']} is prepared: {outputs_in_words(facts)}, {example_in_words(facts)}, {examples}{clients}."
    return [line, *_tell_skipped(content)]


def _tell_skipped(content: Mapping[str, Any]) -> list[str]:
    """Return a line on files that were skipped since they are no images, and the first of them; none without any."""
    if "skipped" not in content:
        return []
    count, files = content["skipped"]["count"], content["skipped"]["files"]
    more = [f"  and {count - len(files)} more"] if count > len(files) else []
    head = f"{count} {'file was' if count == 1 else 'files were'} skipped:"
    return [head, *(f"  {one['file']}: {one['reason']}" for one in files), *more]
