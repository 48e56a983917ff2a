"""The command study: a set of runs with their numbers beside the paper's, or the list of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from fedfeast.app.options import (
    JsonOption,
    SettingsOption,
    TrackOption,
    TrustOption,
    setting_words,
    track_words,
    trust_words,
)
from fedfeast.app.output import console_for, print_error, print_result, show

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from fedfeast.studies import StudyOptions, StudyPlan, StudyResult
    from fedfeast.studies.choosing import LeftOut, Sized


def study(  # noqa: PLR0913 - an argument an option
    name: Annotated[str, typer.Argument(help="A study, list to see them all, or choose: which method for RECIPE?")],
    recipe: Annotated[
        str | None, typer.Argument(help="For choose alone: a shipped recipe, such as digits, or a TOML file's path.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="For choose alone: train every candidate for this time; or give --rounds for all of them."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The study's folder; studies/NAME by default.")] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Where its runs lie, reused by other studies; runs beside the folder by default."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="One of the study's data sets, by default its first; study list has them.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every run, to shorten a study.")] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(help="Only this arm, e.g. A-0.2 of plus or a method of choose; may be given several times."),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="One seed, or several, e.g. 0,1,2, for mean and spread; each trains all runs once. "
            "By default 0; for choose the recipe's."
        ),
    ] = None,
    at_once: Annotated[
        int, typer.Option(help="How many runs share the device, a process each; they come out as one by one.")
    ] = 1,
    mps: Annotated[
        bool | None,
        typer.Option(
            "--mps/--no-mps", help="Let their kernels run together through NVIDIA's MPS; by default where it is there."
        ),
    ] = None,
    settings: SettingsOption = None,
    track: TrackOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a set of runs, finished ones reused, and set their numbers beside the paper's in one report."""
    from fedfeast.studies import StudyOptions, parse_seeds
    from fedfeast.studies.side_by_side import refuse_at_once

    if name == "list":
        _list_studies(as_json)
        return
    given = None if seeds is None else parse_seeds(seeds)
    options = StudyOptions(dataset, rounds, given or (0,), settings or (), runs, arm or (), track or ())
    refuse_at_once(at_once, mps)
    subject = _Subject.of(name, recipe, minutes, out, options, given is None)
    words = [*subject.words(), *at_once_words(at_once, mps), *trust_words(trust)]
    _run_study(subject, at_once, mps, words, as_json)


@dataclass(frozen=True)
class _Subject:
    """What a study is about: its name, and for choose a recipe and a time."""

    name: str
    recipe: str | None
    minutes: float | None
    out: Path | None
    options: "StudyOptions"

    @classmethod
    def of(
        cls,
        name: str,
        recipe: str | None,
        minutes: float | None,
        out: Path | None,
        options: "StudyOptions",
        own_seed: bool,
    ) -> Self:
        """Refuse a recipe or time that the study has no use for, and choose without a recipe."""
        from fedfeast.errors import InvalidInput
        from fedfeast.recipes import load_recipe
        from fedfeast.studies import CHOOSE

        if name != CHOOSE:
            extra = recipe or ("" if minutes is None else f"--minutes {minutes:g}")
            if extra:
                raise InvalidInput(f"{extra} is for study choose, and study {name} has its own: leave it out.")
        elif recipe is None:
            raise InvalidInput("study choose needs a recipe: give a name, e.g. digits, or a TOML file's path.")
        elif own_seed:
            options = replace(options, seeds=(load_recipe(recipe, options.given()).seed,))
        return cls(name, recipe, minutes, out, options)

    def words(self) -> list[str]:
        """Return the words of the command line that goes on with it."""
        timed = [] if self.minutes is None else ["--minutes", f"{self.minutes:g}"]
        return study_words(self.name, self.out, self.options, [*([self.recipe] if self.recipe else []), *timed])

    def plan(self, console: "Console") -> "StudyPlan":
        """Plan it; choose says on the way who takes part, and for how many rounds."""
        from fedfeast.studies.choosing import plan_choice
        from fedfeast.studies.entry import plan_by_name

        if self.recipe is None:
            return plan_by_name(self.name, self.out, self.options)
        return plan_choice(self.recipe, self.minutes, self.out, self.options, _Preparation(console))


class _Preparation:
    """Shows how a choice is prepared, in lines that stay."""

    def __init__(self, console: "Console") -> None:
        self._console = console

    def on_candidates(self, labels: Sequence[str], left_out: Sequence["LeftOut"]) -> None:
        """Name who takes part, and who does not and why."""
        show(self._console, f"candidates  {', '.join(labels)}", *(f"left out    {one}" for one in left_out))

    def on_trial(self, number: int, total: int, label: str) -> None:
        """Name the candidate that is tried."""
        show(self._console, f"trying how long a round takes  {number} of {total}  {label}")

    def on_sized(self, sized: Sequence["Sized"], runs: int) -> None:
        """Say how many rounds each trains, and how long all of it will take."""
        from fedfeast.units import format_seconds

        seconds = runs * sum(one.seconds for one in sized)
        show(self._console, f"rounds      {', '.join(map(str, sized))}", f"in all      about {format_seconds(seconds)}")


def _run_study(subject: _Subject, at_once: int, mps: bool | None, words: Sequence[str], as_json: bool) -> None:
    """Run a study to its report; words are those of the command line that goes on with it."""
    from fedfeast.app.progress import SideBySideProgress, StudyProgress
    from fedfeast.app.stopping import errors_said_once, join_training, stops_explained
    from fedfeast.runs import Interrupted
    from fedfeast.studies import conclude_study, train_study
    from fedfeast.studies.report import describe_result, write_study_report

    ranks = join_training()
    console = console_for(as_json, quiet=not ranks.leads)
    progress = StudyProgress(console) if at_once == 1 else SideBySideProgress(console)

    def where(finished: str) -> str:
        return f"in {progress.current or 'its preparation'} {finished}".rstrip()

    # A study has more to do than its runs: Ctrl-C may also come between them.
    stops = stops_explained(ranks, words, where, (Interrupted, KeyboardInterrupt))
    with errors_said_once(ranks), stops:
        plan = subject.plan(console)
        progress.judge_by(plan.base.metric)
        with _failures_said(words), progress:
            train_study(plan, progress, at_once, mps)
        if not ranks.leads:
            return
        with console.status("concluding"):
            result = conclude_study(plan)
            files = write_study_report(result)
    print_result(describe_result(result, files), _describe(result, files[0]), as_json)


@contextmanager
def _failures_said(words: Sequence[str]) -> Iterator[None]:
    """End with exit code 1 where runs side by side failed, with 2 where all of them for bad input: a sentence each."""
    from fedfeast.app.stopping import command_line
    from fedfeast.engines.ranks import Ranks
    from fedfeast.studies import FailedRuns

    try:
        yield
    except FailedRuns as failed:
        for failure in failed.failures:
            print_error(failure)
        others = f"All other runs are finished. Go on with:\n  {command_line(Ranks(), words)}"
        show(console_for(True), others)
        raise SystemExit(2 if all(one.is_bad_input for one in failed.failures) else 1) from None


def _list_studies(as_json: bool) -> None:
    from fedfeast.studies import CHOOSE, STUDIES
    from fedfeast.studies.choosing import QUESTION, TITLE
    from fedfeast.studies.printing import study_list

    studies = [
        {"name": one.name, "title": one.title, "question": one.question, "datasets": list(one.datasets)}
        for one in STUDIES.values()
    ]
    studies.append({"name": CHOOSE, "title": TITLE, "question": QUESTION, "datasets": []})
    idle = [one.name for one in STUDIES.values() if not one.trains]
    print_result({"studies": studies}, [study_list(studies, idle)], as_json)


def _describe(result: "StudyResult", page: Path) -> list["RenderableType"]:
    from fedfeast.studies.printing import PrintedTable
    from fedfeast.studies.report import notes_of

    tables = map(PrintedTable, result.findings.tables)
    return [*tables, *notes_of(result), f"report   {page}"]


def study_words(name: str, out: Path | None, options: "StudyOptions", about: Sequence[str] = ()) -> list[str]:
    """Return the words of the command line that goes on with a study, with those about what stands behind its name."""
    given = {
        "--out": out,
        "--runs": options.runs,
        "--dataset": options.dataset,
        "--rounds": options.rounds,
        "--seeds": ",".join(map(str, options.seeds)) if tuple(options.seeds) != (0,) else None,
    }
    words = [str(word) for option, value in given.items() if value is not None for word in (option, value)]
    words += [word for name in options.arms for word in ("--arm", name)]
    return ["study", name, *about, *words, *setting_words(list(options.settings)), *track_words(options.track)]


def at_once_words(at_once: int, mps: bool | None) -> list[str]:
    """Return the words of a command line that runs so many at once."""
    service = {None: [], True: ["--mps"], False: ["--no-mps"]}[mps]
    return [*(["--at-once", str(at_once)] if at_once != 1 else []), *service]
