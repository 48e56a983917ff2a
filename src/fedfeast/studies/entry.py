"""A study in one call: planned, trained, concluded and reported."""

from pathlib import Path
from typing import Protocol

from fedfeast.recipes import Recipe
from fedfeast.studies.catalogue import find_study
from fedfeast.studies.choosing import ChoiceObserver, plan_choice
from fedfeast.studies.options import StudyOptions
from fedfeast.studies.report import write_study_report
from fedfeast.studies.running import StudyObserver, StudyPlan, StudyResult, conclude_study, plan_study, train_study


def study(
    name: str,
    out: Path | str | None = None,
    options: StudyOptions | None = None,
    observer: StudyObserver | None = None,
    at_once: int = 1,
    mps: bool | None = None,
) -> StudyResult:
    """Run a study in a folder (studies/NAME by default), write its report and return its tables and curves.

    Several runs at once share the device, a process each; one at a time is trained in this process.
    """
    return _carry_out(plan_by_name(name, out, options or StudyOptions()), observer, at_once, mps)


class ObserverOfChoice(StudyObserver, ChoiceObserver, Protocol):
    """Is told of a comparison's preparation and of its runs."""


def choose(
    recipe: str | Path | Recipe,
    minutes: float | None = None,
    out: Path | str | None = None,
    options: StudyOptions | None = None,
    observer: ObserverOfChoice | None = None,
) -> StudyResult:
    """Train the methods that suit a recipe for so many minutes each, or for the options' rounds, and recommend one.

    ``result.findings.facts["recommended"]`` is its name, ``facts["advice"]`` says why and when another one is better.
    """
    return _carry_out(plan_choice(recipe, minutes, out, options, observer), observer)


def _carry_out(
    plan: StudyPlan, observer: StudyObserver | None, at_once: int = 1, mps: bool | None = None
) -> StudyResult:
    train_study(plan, observer, at_once, mps)
    result = conclude_study(plan)
    write_study_report(result)
    return result


def plan_by_name(name: str, out: Path | str | None, options: StudyOptions) -> StudyPlan:
    """Plan the study of this name in a folder, studies/NAME by default."""
    return plan_study(find_study(name), Path("studies") / name if out is None else Path(out), options)
