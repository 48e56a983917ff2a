"""The plan of a comparison: who takes part, how many rounds each trains, and in which folder."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from fedfeast.engines.ranks import join_ranks
from fedfeast.errors import InvalidInput
from fedfeast.planning.outline import outline, refuse_larger_cohorts
from fedfeast.recipes import Recipe
from fedfeast.recipes.recipe import resolve_recipe
from fedfeast.runs.time_budget import TimeLimit
from fedfeast.studies.choosing.candidates import LeftOut, find_candidates
from fedfeast.studies.choosing.conclusion import conclude_choice
from fedfeast.studies.choosing.sizing import SIZED, Sized, size_candidates
from fedfeast.studies.options import StudyOptions
from fedfeast.studies.protocol import refuse_disagreement
from fedfeast.studies.running import PlannedRun, StudyPlan, refuse_taken
from fedfeast.studies.study import Study

TITLE = "Which method for this recipe?"
QUESTION = "Which of the methods that suit a recipe's clients serves them best, and what does each cost?"


class ChoiceObserver(Protocol):
    """Is told how a comparison is prepared."""

    def on_candidates(self, labels: Sequence[str], left_out: Sequence[LeftOut]) -> None:
        """Who takes part is known, and who does not and why."""
        ...

    def on_trial(self, number: int, total: int, label: str) -> None:
        """Some rounds of a candidate are tried and timed."""
        ...

    def on_sized(self, sized: Sequence[Sized], runs: int) -> None:
        """How many rounds each candidate trains is known, and that there are so many runs of all seeds."""
        ...


class SilentChoice:
    """An observer that shows nothing."""

    def on_candidates(self, labels: Sequence[str], left_out: Sequence[LeftOut]) -> None:
        """Show nothing."""

    def on_trial(self, number: int, total: int, label: str) -> None:
        """Show nothing."""

    def on_sized(self, sized: Sequence[Sized], runs: int) -> None:
        """Show nothing."""


def plan_choice(
    recipe: str | Path | Recipe,
    minutes: float | None,
    out: Path | str | None = None,
    options: StudyOptions | None = None,
    observer: ChoiceObserver | None = None,
) -> StudyPlan:
    """Find the candidates of a recipe and size them: the same time for each, or the same number of rounds.

    Without options the seed is the recipe's own. What trials took is kept in the folder, so that rounds stay.
    """
    shown, given = observer or SilentChoice(), options or StudyOptions()
    _refuse_conflicts(minutes, given)
    base = resolve_recipe(recipe, given.given())
    if options is None:
        given = replace(given, seeds=(base.seed,))
    base = resolve_recipe(base, {"seed": given.seeds[0]})
    if given.rounds is not None:
        base = resolve_recipe(base, {"training.rounds": given.rounds})
    candidates, left_out = find_candidates(base, given.arms)
    own = next((one for one in candidates if one.recipe.method_name == base.method_name), candidates[0])
    refuse_larger_cohorts(own.recipe, outline(own.recipe).population)
    conclude = partial(conclude_choice, left_out=left_out, minutes=minutes)
    study = Study("choose", TITLE, QUESTION, lambda resolve: (), conclude, SIZED, datasets=())
    told = "" if minutes is None else f"as many rounds as fit {minutes:g} minutes here, each"
    each = f"{base.training.rounds}-rounds" if minutes is None else f"{minutes:g}-minutes"
    folder = Path("studies") / f"choose-{base.name}-{each}" if out is None else Path(out)
    plan = StudyPlan(study, own.recipe, (), given, folder, told)
    refuse_taken(plan)
    shown.on_candidates([one.arm.label for one in candidates], left_out)
    if minutes is not None:
        sized = size_candidates(candidates, minutes, folder, list(given.given()), shown.on_trial)
        shown.on_sized(sized, len(given.seeds))
        candidates = [one.candidate for one in sized]
    runs = tuple(
        PlannedRun(one.arm, seed, resolve_recipe(one.recipe, {"seed": seed}))
        for one in candidates
        for seed in given.seeds
    )
    refuse_disagreement({run.label: run.recipe for run in runs}, study.varied)
    return replace(plan, runs=runs)


def _refuse_conflicts(minutes: float | None, options: StudyOptions) -> None:
    """Refuse what does not say how long candidates train, and what a recipe says already."""
    if minutes is not None:
        TimeLimit(minutes)  # refuses what is no time
        if options.rounds is not None:
            raise InvalidInput(
                f"--minutes {minutes:g} gives every candidate the same time, and --rounds {options.rounds} the same "
                "number of rounds: leave out one of them."
            )
        if join_ranks().size > 1:
            raise InvalidInput(
                f"--minutes is for one process, and there are {join_ranks().size}: give --rounds instead."
            )
    elif options.rounds is None:
        raise InvalidInput(
            "study choose needs to know how long candidates train: give --minutes, e.g. --minutes 5 for each, or "
            "--rounds for the same number of rounds."
        )
    if options.dataset is not None:
        raise InvalidInput(f"--dataset {options.dataset}: study choose takes the data of its recipe, so leave it out.")
