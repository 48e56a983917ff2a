"""The command study: a set of runs with their numbers beside the paper's, or the list of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedfeast.app.options import JsonOption, SettingsOption, TrustOption, setting_words, trust_words
from fedfeast.app.output import console_for, print_result

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedfeast.studies import StudyOptions, StudyResult


def study(  # noqa: PLR0913 - an argument an option
    name: Annotated[str, typer.Argument(help="A study, or list to see them all.")],
    out: Annotated[Path | None, typer.Option(help="The study's folder; studies/NAME by default.")] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Where its runs lie, reused by other studies; runs beside the folder by default."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="One of the study's data sets, by default its first; study list has them.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every run, to shorten a study.")] = None,
    seeds: Annotated[str, typer.Option(help="One or several seeds, e.g. 0,1,2: mean and spread are reported.")] = "0",
    settings: SettingsOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a set of runs, finished ones reused, and set their numbers beside the paper's in one report."""
    from fedfeast.studies import StudyOptions, parse_seeds

    if name == "list":
        _list_studies(as_json)
    else:
        options = StudyOptions(dataset, rounds, parse_seeds(seeds), settings or (), runs)
        _run_study(name, out, options, as_json, trust)


def _run_study(name: str, out: Path | None, options: "StudyOptions", as_json: bool, trust: bool) -> None:
    from fedfeast.app.progress import StudyProgress
    from fedfeast.app.stopping import errors_said_once, join_training, stops_explained
    from fedfeast.runs import Interrupted
    from fedfeast.studies import conclude_study, train_study
    from fedfeast.studies.entry import plan_by_name
    from fedfeast.studies.report import describe_result, write_study_report

    ranks = join_training()
    console = console_for(as_json, quiet=not ranks.leads)
    progress = StudyProgress(console)

    def where(finished: str) -> str:
        return f"in {progress.current or 'its preparation'} {finished}".rstrip()

    # A study has more to do than its runs: Ctrl-C may also come between them.
    words = [*study_words(name, out, options), *trust_words(trust)]
    stops = stops_explained(ranks, words, where, (Interrupted, KeyboardInterrupt))
    with errors_said_once(ranks), stops:
        plan = plan_by_name(name, out, options)
        progress.judge_by(plan.base.metric)
        with progress:
            train_study(plan, progress)
        if not ranks.leads:
            return
        with console.status("concluding"):
            result = conclude_study(plan)
            files = write_study_report(result)
    print_result(describe_result(result, files), _describe(result, files[0]), as_json)


def _list_studies(as_json: bool) -> None:
    from fedfeast.presentation.tables import study_list
    from fedfeast.studies import STUDIES

    studies = [
        {"name": one.name, "title": one.title, "question": one.question, "datasets": list(one.datasets)}
        for one in STUDIES.values()
    ]
    idle = [one.name for one in STUDIES.values() if not one.trains]
    print_result({"studies": studies}, [study_list(studies, idle)], as_json)


def _describe(result: "StudyResult", page: Path) -> list["RenderableType"]:
    from fedfeast.presentation.tables import study_table
    from fedfeast.studies.report import notes_of

    tables = [
        study_table(
            table.full_title, table.note, table.header(), table.lines(), len(table.columns), grouped=table.published
        )
        for table in result.findings.tables
    ]
    return [*tables, *notes_of(result), f"report   {page}"]


def study_words(name: str, out: Path | None, options: "StudyOptions") -> list[str]:
    """Return the words of the command line that goes on with a study."""
    given = {
        "--out": out,
        "--runs": options.runs,
        "--dataset": options.dataset,
        "--rounds": options.rounds,
        "--seeds": ",".join(map(str, options.seeds)) if tuple(options.seeds) != (0,) else None,
    }
    words = [str(word) for option, value in given.items() if value is not None for word in (option, value)]
    return ["study", name, *words, *setting_words(list(options.settings))]
