"""The commands that train a run and tell of it: train, evaluate, report."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedfeast.app.options import (
    JsonOption,
    RunArgument,
    SettingsOption,
    TrackOption,
    TrustOption,
    setting_words,
    track_words,
    trust_words,
)
from fedfeast.app.output import console_for, print_result, show

if TYPE_CHECKING:
    from rich.console import Console

    from fedfeast.planning.cost import Cost
    from fedfeast.runs import Run


def train(  # noqa: PLR0913 - each argument is an option of the command
    recipe: Annotated[
        str,
        typer.Argument(
            help="A shipped recipe, such as digits (recipes list shows them all), a TOML file's path, "
            "or a folder of photos, FOLDER/CLASS/*.jpg."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/RECIPE by default.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="Train as many rounds as fit this time; 10 for a folder of photos without training.rounds."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="eager or graphs (needs CUDA); by default what suits the device.")
    ] = None,
    settings: SettingsOption = None,
    track: TrackOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a recipe, first saying what it will cost; where the folder holds an unfinished run of it, go on."""
    began = time.monotonic()  # before torch is loaded
    from fedfeast.app.progress import LiveProgress
    from fedfeast.app.stopping import errors_said_once, join_training, stops_explained
    from fedfeast.planning.own_photos import is_photo_folder
    from fedfeast.presentation.tracking import choose_trackers, tracked
    from fedfeast.runs import Run
    from fedfeast.runs.run import photo_limit
    from fedfeast.runs.time_budget import TimeLimit

    settings = [*(settings or []), *([f"engine.name={engine}"] if engine else [])]
    ranks = join_training()
    console = console_for(as_json, quiet=not ranks.leads)
    with errors_said_once(ranks):
        choose_trackers(track or ())  # what is wrong with them is said before a folder is made
        limit = None if minutes is None else TimeLimit(minutes, began)
        source, given = recipe, settings
        if is_photo_folder(recipe):
            limit = limit or photo_limit(settings)
            source, given = ranks.from_leader(lambda: _take_photos(recipe, settings, console))
        with console.status("trying how long a round takes" if limit is not None else "assembling"):
            run = Run.create(source, out, given, limit=limit)
        if run.time_budget is not None:
            show(console, run.time_budget.sentence())
        timed = [] if limit is None else ["--minutes", f"{limit.minutes:g}"]
        chosen = [*setting_words(settings), *track_words(track or ()), *trust_words(trust)]
        words = ["train", recipe, "--out", str(run.folder.path), *timed, *chosen]
        with (
            stops_explained(ranks, words, lambda finished: f"{finished} of {run.recipe.training.rounds}"),
            LiveProgress(console, run.metric, _cost_of(run, ranks.size)) as progress,
            tracked(run, track, progress) if track and ranks.leads else nullcontext(progress) as observer,
        ):
            run.train(observer)
    if ranks.leads:
        _present(run, as_json)


def _take_photos(folder: str, settings: list[str], console: "Console") -> tuple[str, list[str]]:
    """Prepare a folder's photos, saying what came of it; return the recipe that takes them, and its settings."""
    from fedfeast.app.data import tell_prepared
    from fedfeast.app.progress import ShareProgress
    from fedfeast.planning.own_photos import recipe_for_photos

    with ShareProgress(console) as bar:
        stands_for = recipe_for_photos(folder, settings, lambda done, total: bar.show("decoding", done, total))
    if stands_for.photos.description is not None:
        show(console, *tell_prepared(stands_for.photos.description))
    return stands_for.recipe, [*(f'{key}="{value}"' for key, value in stands_for.settings.items()), *settings]


def evaluate(
    folder: RunArgument,
    against: Annotated[Path | None, typer.Option(help="Another run to count client wins against.")] = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure every operating point of a run's best checkpoint on the test set."""
    from fedfeast.app.progress import LiveProgress
    from fedfeast.runs import Run

    run = Run.open(folder)
    other = Run.open(against) if against is not None else None
    if other is not None:
        other.summary  # noqa: B018 - fails early where the other run has none
    with LiveProgress(console_for(as_json), run.metric) as progress:
        run.evaluate(progress)
    _present(run, as_json, other)


def report(
    folders: Annotated[list[Path], typer.Argument(help="One or several runs' folders.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; by default report.html in the first folder.")] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Also write the training history as TensorBoard events into this folder.")
    ] = None,
    track: TrackOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write one self-contained HTML page about one or several runs, with its pictures as files."""
    from fedfeast.presentation.report import write_report
    from fedfeast.runs import Run

    runs = [Run.open(folder) for folder in folders]
    page = out if out is not None else folders[0] / "report.html"
    files = write_report(runs, page)
    if tensorboard is not None:
        from fedfeast.presentation.tracking.tensorboard import write_events

        write_events(runs, tensorboard)
    if track:
        from fedfeast.presentation.tracking import tell_finished

        for run in runs:
            tell_finished(run, track)
    print_result({"report": str(page), "files": [str(file) for file in files]}, [f"report   {page}"], as_json)


def _cost_of(run: "Run", processes: int) -> "Callable[[int], Cost]":
    """Return what says what so many rounds of a run cost; it is asked when the federation is there."""
    from fedfeast.planning.cost import estimate_cost
    from fedfeast.planning.outline import outline

    return lambda rounds: estimate_cost(
        outline(run.recipe), run.federation.partition.shards.sizes.astype(float), rounds, processes
    )


def _present(run: "Run", as_json: bool, other: "Run | None" = None) -> None:
    from fedfeast.presentation.pictures import draw_curves
    from fedfeast.presentation.tables import describe_run

    picture = run.folder.path / "curve.png"
    draw_curves([run], picture)
    draw_curves([run], picture.with_suffix(".svg"))
    wins = run.client_wins(other) if other is not None else None
    content: dict[str, Any] = {**run.summary, "picture": str(picture)}
    if wins is not None:
        content["client_wins"] = {"wins": wins.wins, "ties": wins.ties, "losses": wins.losses}
    print_result(content, describe_run(content, run.folder.budgets_macs()), as_json)
