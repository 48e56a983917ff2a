"""The commands that train a run and tell of it: train, evaluate, report."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedfeast.app.options import (
    JsonOption,
    RecipeArgument,
    RunArgument,
    SettingsOption,
    TrustOption,
    setting_words,
    trust_words,
)
from fedfeast.app.output import console_for, print_result

if TYPE_CHECKING:
    from fedfeast.planning.cost import Cost
    from fedfeast.runs import Run


def train(
    recipe: RecipeArgument,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/RECIPE by default.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="eager or graphs (needs CUDA); by default what suits the device.")
    ] = None,
    settings: SettingsOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a recipe, first saying what it will cost; where the folder holds an unfinished run of it, go on."""
    from fedfeast.app.progress import LiveProgress
    from fedfeast.app.stopping import errors_said_once, join_training, stops_explained
    from fedfeast.runs import Run

    settings = [*(settings or []), *([f"engine.name={engine}"] if engine else [])]
    ranks = join_training()
    with errors_said_once(ranks):
        run = Run.create(recipe, out, settings)
        words = ["train", recipe, "--out", str(run.folder.path), *setting_words(settings), *trust_words(trust)]
        with (
            stops_explained(ranks, words, lambda finished: f"{finished} of {run.recipe.training.rounds}"),
            LiveProgress(
                console_for(as_json, quiet=not ranks.leads), run.metric, _cost_of(run, ranks.size)
            ) as progress,
        ):
            run.train(progress)
    if ranks.leads:
        _present(run, as_json)


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
        from fedfeast.presentation.tensorboard import write_events

        write_events(runs, tensorboard)
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
