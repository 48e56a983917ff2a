"""Studies for a person at a terminal and, as fedfeast.study, for Python."""

import json
import shlex
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from fedfeast.app.complaint import print_error
from fedfeast.app.progress import StudyProgress
from fedfeast.app.train_command import program_of
from fedfeast.engines.ranks import LostRank, Ranks, join_ranks
from fedfeast.errors import InvalidInput
from fedfeast.runs import Interrupted
from fedfeast.runs.interrupts import ignore_interrupts
from fedfeast.studies import (
    STUDIES,
    StudyObserver,
    StudyOptions,
    StudyResult,
    conclude_study,
    find_study,
    plan_study,
    train_study,
)
from fedfeast.studies.report import describe_result, notes_of, write_study_report
from fedfeast.studies.tables import Table


def study(
    name: str,
    out: Path | str | None = None,
    options: StudyOptions | None = None,
    observer: StudyObserver | None = None,
) -> StudyResult:
    """Run a study in a folder (studies/NAME by default), write its report and return its tables and curves."""
    plan = plan_study(find_study(name), _folder(name, out), options or StudyOptions())
    train_study(plan, observer)
    result = conclude_study(plan)
    write_study_report(result)
    return result


def study_or_explain(name: str, out: Path | None, options: StudyOptions, as_json: bool) -> None:
    """Run a study with a live display and show its tables; what goes wrong is said once, by one rank."""
    ranks = join_ranks()
    if ranks.size > 1:
        ignore_interrupts()  # as in training: torchrun repeats a signal
    console = Console(stderr=as_json, quiet=not ranks.leads)
    progress = StudyProgress(console)
    try:
        plan = plan_study(find_study(name), _folder(name, out), options)
        with progress:
            train_study(plan, progress)
        if not ranks.leads:
            return
        with console.status("concluding"):
            result = conclude_study(plan)
            files = write_study_report(result)
    except (InvalidInput, LostRank) as error:
        complaint = error  # the name above ends with its clause
        ranks.say_once(lambda: print_error(complaint))
        raise SystemExit(2 if isinstance(error, InvalidInput) else 1) from None
    except (Interrupted, KeyboardInterrupt) as stop:
        if ranks.leads:
            _say_how_to_go_on(progress.current, stop, how_to_go_on(name, out, options, ranks))
        raise SystemExit(130) from None
    if as_json:
        print(json.dumps(describe_result(result, files), indent=2))
    else:
        _present(result, files, console)


def list_studies(as_json: bool) -> None:
    """Show every study with its question."""
    if as_json:
        studies = [
            {"name": one.name, "title": one.title, "question": one.question, "datasets": list(one.datasets)}
            for one in STUDIES.values()
        ]
        print(json.dumps({"studies": studies}, indent=2))
        return
    table = RichTable("study", "what it asks", title="fedfeast study NAME")
    for one in STUDIES.values():
        table.add_row(one.name, f"{one.question} [dim]{one.title}{'' if one.trains else '; trains nothing'}[/]")
    Console().print(table)


def how_to_go_on(name: str, out: Path | None, options: StudyOptions, ranks: Ranks) -> str:
    """Return the command that goes on with a study."""
    given = {
        "--out": out,
        "--runs": options.runs,
        "--dataset": options.dataset,
        "--rounds": options.rounds,
        "--seeds": ",".join(map(str, options.seeds)) if tuple(options.seeds) != StudyOptions().seeds else None,
    }
    words = [str(word) for option, value in given.items() if value is not None for word in (option, value)]
    settings = [word for setting in options.settings for word in ("--set", setting)]
    return shlex.join([*program_of(ranks), "study", name, *words, *settings])


def rich_table(table: Table) -> RichTable:
    """Return a table for the terminal."""
    shown = RichTable(title=escape(table.full_title), caption=escape(table.note) or None)
    labels = len(table.header()) - len(table.columns)
    for position, heading in enumerate(table.header()):
        is_label = position < labels
        shown.add_column(escape(heading), justify="left" if is_label else "right", no_wrap=is_label)
    lines = table.lines()
    for line, following in pairwise([*lines, ["end"]]):
        shown.add_row(*map(escape, line), end_section=table.published and bool(following[0]))
    return shown


def _present(result: StudyResult, files: list[Path], console: Console) -> None:
    for table in result.findings.tables:
        console.print(rich_table(table))
    for note in notes_of(result):
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    console.print(f"report   {files[0]}", highlight=False, markup=False, soft_wrap=True)


def _say_how_to_go_on(current: str, stop: Interrupted | KeyboardInterrupt, command: str) -> None:
    reason = f"Training cannot go on: {stop.reason}.\n" if isinstance(stop, Interrupted) and stop.reason else ""
    after = f" after round {stop.finished_rounds}" if isinstance(stop, Interrupted) else ""
    Console(stderr=True).print(
        f"{reason}Stopped in {current or 'its preparation'}{after}; all of it is saved. Go on with:\n  {command}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


def _folder(name: str, out: Path | str | None) -> Path:
    return Path("studies") / name if out is None else Path(out)
