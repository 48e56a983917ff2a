"""The command line."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedfeast.app.complaint import print_error
from fedfeast.app.data_commands import data_app
from fedfeast.app.fleet_commands import fleet_app
from fedfeast.app.serve_command import serve
from fedfeast.app.serving_commands import add_serving_commands
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
app.add_typer(data_app)
app.add_typer(fleet_app)

SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a field of the recipe; may be repeated."),
]
RecipeArgument = Annotated[str, typer.Argument(help="A shipped recipe (digits, cifar100-paper, ...) or a TOML file.")]
RunArgument = Annotated[Path, typer.Argument(help="A run's folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Handle what stands before a command."""
    if version:
        from fedfeast.version import VERSION

        print(VERSION)
        raise typer.Exit


@app.command()
def train(
    recipe: RecipeArgument,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/RECIPE by default.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="eager or graphs (needs CUDA); by default what suits the device.")
    ] = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a recipe; where the folder holds an unfinished run of it, go on from its last checkpoint."""
    from fedfeast.app.train_command import train_or_explain

    settings = [*(settings or []), *([f"engine.name={engine}"] if engine else [])]
    run = train_or_explain(recipe, out, settings, as_json)
    if run is not None:
        _present(run, as_json)


@app.command()
def evaluate(
    folder: RunArgument,
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


@app.command()
def plan(
    recipe: RecipeArgument,
    gamma: Annotated[
        str | None, typer.Option(help="One or several values, e.g. 0,0.5,1: their plans are set side by side.")
    ] = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a federation will send, compute and cover, before it starts and without its data."""
    from fedfeast.planning import plan_recipe
    from fedfeast.planning.outline import outline
    from fedfeast.planning.timing import time_passes
    from fedfeast.presentation.plan_tables import print_plans
    from fedfeast.recipes import load_recipe

    words = settings or []
    for word in words:
        if word.startswith("population.gamma=["):  # the same as --gamma
            gamma = word.partition("=")[2].strip("[]")
    words = [word for word in words if not word.startswith("population.gamma=[")]
    gammas = [] if gamma is None else [[f"population.gamma={one.strip()}"] for one in gamma.split(",")]
    recipes = [load_recipe(recipe, [*words, *one]) for one in gammas or [[]]]
    console = _console(as_json)
    with console.status("planning"):
        times = time_passes(outline(recipes[0]))
        plans = [plan_recipe(one, times=times) for one in recipes]
    if as_json:
        print(json.dumps(plans[0] if len(plans) == 1 else {"plans": plans}, indent=2))
    else:
        print_plans(plans, console)


@app.command()
def measure(
    recipe: RecipeArgument = "digits",
    target_ms: Annotated[
        float | None, typer.Option("--target-ms", help="A latency per image; the budget that keeps it is suggested.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            help="Threads to time with; every usable core without it (in eager torch the recipe's, or torch's)."
        ),
    ] = None,
    variants: Annotated[int, typer.Option(help="How many sizes to time, from the smallest to the largest.")] = 5,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what this device can afford: latency of a few sizes, MACs a second, memory, a budget. Needs no data."""
    from fedfeast.presentation.measure_tables import print_measured
    from fedfeast.serving.measuring import measure_device

    console = _console(as_json)
    with console.status("measuring"):
        measured = measure_device(recipe, settings or [], target_ms, threads, variants)
    if as_json:
        print(json.dumps(measured, indent=2))
    else:
        print_measured(measured, console)


@app.command()
def methods(
    recipe: Annotated[
        str, typer.Option(help="The recipe whose networks the operating points are of.")
    ] = "cifar100-paper",
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the methods with a sentence, the paper, their options and what they would serve."""
    from fedfeast.presentation.method_tables import print_methods
    from fedfeast.recipes.method_list import list_methods

    listed = list_methods(recipe, settings or [])
    if as_json:
        print(json.dumps(listed, indent=2))
    else:
        print_methods(listed, recipe, _console(as_json))


@app.command()
def search(
    recipe: RecipeArgument,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the cache, RECIPE-cache.csv by default; a picture goes beside it."),
    ] = None,
    targets: Annotated[
        str | None, typer.Option(help="MAC targets, e.g. 25e6,50e6; without them the recipe's [variants].")
    ] = None,
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build a cache of variants for a recipe's space: the fittest network within every MAC target."""
    from fedfeast.app.progress import CountedProgress
    from fedfeast.planning.searching import search_recipe, targets_of
    from fedfeast.presentation.pictures import draw_search
    from fedfeast.recipes import load_recipe

    loaded = load_recipe(recipe, settings or [])
    file = out if out is not None else Path(f"{loaded.name}-cache.csv")
    wanted = _parse_numbers("--targets", targets) if targets is not None else targets_of(loaded)
    console = _console(as_json)
    with CountedProgress(console, "searching", len(wanted)) as progress:
        result = search_recipe(loaded, wanted, lambda found: progress.advance(f"{found.macs:,} MACs"))
    result.write(file)
    draw_search(result.distinct, file.with_suffix(".png"))
    facts = {
        "cache": str(file),
        "picture": str(file.with_suffix(".png")),
        "variants": len(result.distinct),
        "macs_min": result.distinct[0].macs,
        "macs_max": result.distinct[-1].macs,
        "repeated_targets": [result.found[position].target_macs for position in result.repeated],
        "dominated_targets": [result.found[position].target_macs for position in result.dominated],
    }
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        console.print(f"{name.replace('_', ' '):<18} {value}", highlight=False, markup=False, soft_wrap=True)


add_serving_commands(app)
app.command()(serve)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="One or several runs' folders.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; by default report.html in the first folder.")] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Also write the training history as TensorBoard events into this folder.")
    ] = None,
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
    if as_json:
        print(json.dumps({"report": str(page), "files": [str(file) for file in files]}, indent=2))
    else:
        _console(as_json).print(f"report   {page}", highlight=False, markup=False, soft_wrap=True)


@app.command()
def study(  # noqa: PLR0913 - an argument an option
    name: Annotated[str, typer.Argument(help="A study, or list to see them all.")],
    out: Annotated[Path | None, typer.Option(help="The study's folder; studies/NAME by default.")] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Where its runs lie, reused by other studies; runs beside the folder by default."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="cifar100 (default), cinic10, tinyimagenet or digits.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every run, to shorten a study.")] = None,
    seeds: Annotated[str, typer.Option(help="One or several seeds, e.g. 0,1,2: mean and spread are reported.")] = "0",
    settings: SettingsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a set of runs, finished ones reused, and set their numbers beside the paper's in one report."""
    from fedfeast.app.study_command import list_studies, study_or_explain
    from fedfeast.studies import StudyOptions, parse_seeds

    if name == "list":
        list_studies(as_json)
        return
    options = StudyOptions(dataset, rounds, parse_seeds(seeds), settings or (), runs)
    study_or_explain(name, out, options, as_json)


def _parse_numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidInput(f"{name} {text!r} is no list of numbers: write it like 25e6,50e6.") from None


def _present(run: "Run", as_json: bool, other: "Run | None" = None) -> None:
    from fedfeast.presentation.pictures import draw_curves
    from fedfeast.presentation.tables import print_summary

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
