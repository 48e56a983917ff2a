"""Run a study: every arm with every seed, each finished run reused, each unfinished one gone on with."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from fedfeast.engines.ranks import join_ranks
from fedfeast.errors import InvalidInput
from fedfeast.planning.outline import outline
from fedfeast.presentation.tracking import tracked
from fedfeast.recipes import Recipe, load_recipe
from fedfeast.recipes.recipe import differing_settings, packaged_recipes
from fedfeast.runs import Observer, Run
from fedfeast.runs.folder import RunFolder
from fedfeast.runs.training import Silent
from fedfeast.studies.alone import ClientAlone, read_alone, train_alone
from fedfeast.studies.arms import Arm
from fedfeast.studies.options import StudyOptions
from fedfeast.studies.pairs import Pair, compare_arms, describe_pairs, pairs_table
from fedfeast.studies.protocol import is_of, own_of_methods, refuse_disagreement
from fedfeast.studies.results import Outcome, Results
from fedfeast.studies.side_by_side import (
    PendingRun,
    RunProgress,
    SideBySideObserver,
    refuse_at_once,
    run_side_by_side,
    sharing_device,
)
from fedfeast.studies.study import Findings, Study
from fedfeast.whole_files import write_json

LONGEST_NAME = 80  # of a run's folder, before its hash
TIMES_FILE = "round_times.json"  # what trials before a study left in its folder


class StudyObserver(Observer, SideBySideObserver, Protocol):
    """Is told of a study's progress, and of the progress of each of its runs, one at a time or several at once."""

    def on_run(self, number: int, total: int, name: str, reused: bool) -> None:
        """A run begins, or was found finished."""
        ...


class SilentStudy(Silent):
    """An observer that shows nothing."""

    def on_run(self, number: int, total: int, name: str, reused: bool) -> None:
        """Show nothing."""

    def on_device_shared(self, sentence: str) -> None:
        """Show nothing."""

    def on_progress(self, runs: Sequence[RunProgress]) -> None:
        """Show nothing."""


@dataclass(frozen=True)
class PlannedRun:
    """One arm with one seed."""

    arm: Arm
    seed: int
    recipe: Recipe

    @property
    def label(self) -> str:
        """What the run is called in progress and messages."""
        return f"{self.arm.label}, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class StudyPlan:
    """A study that is ready to run in its folder."""

    study: Study
    base: Recipe
    runs: tuple[PlannedRun, ...]
    options: StudyOptions
    folder: Path
    rounds: str = ""  # how many each run has, in words, where that is not the base recipe's number

    @property
    def runs_folder(self) -> Path:
        """Where the runs lie; studies side by side share it, so that equal runs are trained once."""
        return self.folder.parent / "runs" if self.options.runs is None else Path(self.options.runs)


@dataclass(frozen=True, eq=False)
class StudyResult:
    """A finished study: its numbers, its tables and its curves."""

    plan: StudyPlan
    results: Results
    findings: Findings
    pairs: tuple[Pair, ...] = ()  # arms beside one of them: which differences are larger than chance


def plan_study(study: Study, folder: Path, options: StudyOptions) -> StudyPlan:
    """Resolve every arm's recipe; refuse runs that disagree in protocol before anything is trained."""
    base = options.recipe(study, {})
    arms = options.chosen(study, study.arms(lambda settings: options.recipe(study, settings)))
    for key in options.given():
        if all(key in arm.settings for arm in arms):
            raise InvalidInput(f"--set {key}=... is what study {study.name} varies by itself: leave it out.")
    runs = tuple(
        PlannedRun(arm, seed, options.recipe(study, {**arm.settings, "seed": seed}))
        for arm in arms
        for seed in options.seeds
    )
    refuse_disagreement({run.label: run.recipe for run in runs}, (*study.varied, *own_of_methods(base)))
    return StudyPlan(study, base, runs, options, folder)


def train_study(
    plan: StudyPlan, observer: StudyObserver | None = None, at_once: int = 1, mps: bool | None = None
) -> None:
    """Train every run that is not finished yet, one after the other, or several at once in processes of their own.

    Processes that share a GPU do so through NVIDIA's MPS where it can be had; mps asks for it, or for none.
    """
    ranks, shown = join_ranks(), observer or SilentStudy()
    refuse_at_once(at_once, mps)
    if at_once > 1 and plan.study.trains:
        if ranks.size > 1:
            raise InvalidInput(f"--at-once {at_once} starts processes of its own: start the study without torchrun.")
        _train_side_by_side(plan, shown, at_once, mps)
        _train_alone(plan, shown)
        return
    ranks.from_leader(lambda: _refuse_untrainable(plan))
    ranks.from_leader(lambda: _claim(plan))
    if not plan.study.trains:
        return
    for number, planned in enumerate(plan.runs, start=1):
        path = plan.runs_folder / folder_name(planned.recipe)
        reused = ranks.from_leader(partial(is_finished, path, planned.recipe))
        if ranks.leads:
            shown.on_run(number, len(plan.runs), planned.label, reused)
        if not reused:
            run = Run.create(planned.recipe, path)
            told = plan.options.track and ranks.leads
            with tracked(run, plan.options.track, shown) if told else nullcontext(shown) as watching:
                run.train(watching)
    ranks.from_leader(lambda: _train_alone(plan, shown))


def _refuse_untrainable(plan: StudyPlan) -> None:
    """Refuse, before hours of training, a run whose method its recipe's clients or network do not fit, by its name."""
    for planned in plan.runs if plan.study.trains else ():
        try:
            if not is_finished(plan.runs_folder / folder_name(planned.recipe), planned.recipe):
                outline(planned.recipe)
        except InvalidInput as error:
            raise InvalidInput(f"{planned.label}: {error}") from error


def _train_side_by_side(plan: StudyPlan, shown: StudyObserver, at_once: int, mps: bool | None) -> None:
    """Train the same runs in the same folders, so many at a time; arms that are one run are trained once."""
    _refuse_untrainable(plan)
    total, names = len(plan.runs), set[str]()
    finished, pending = list[tuple[int, str]](), list[PendingRun]()
    for number, planned in enumerate(plan.runs, start=1):
        name = folder_name(planned.recipe)
        folder, log = plan.runs_folder / name, plan.folder / "logs" / f"{name}.log"
        if name not in names and is_finished(folder, planned.recipe):
            finished.append((number, planned.label))
        elif name not in names:
            pending.append(PendingRun(number, planned.label, planned.recipe, folder, log, tuple(plan.options.track)))
        names.add(name)
    with ExitStack() as stack:
        share = stack.enter_context(sharing_device(pending, at_once, mps)) if pending else None
        _claim(plan)
        for number, label in finished:
            shown.on_run(number, total, label, True)
        if share is not None:
            shown.on_device_shared(share.sentence)
            run_side_by_side(pending, share, shown, lambda run: shown.on_run(run.number, total, run.label, False))


def _train_alone(plan: StudyPlan, shown: StudyObserver) -> None:
    """Train clients each by itself, where the study compares with that; those that are done are not trained again."""
    for seed in plan.options.seeds if plan.study.alone else ():
        numbers = count(1)

        def tell(client: ClientAlone, total: int, seed: int = seed, numbers: Iterator[int] = numbers) -> None:
            shown.on_run(next(numbers), total, f"client {client.client} alone, seed {seed}", False)

        train_alone(plan.options.recipe(plan.study, {"seed": seed}), _alone_folder(plan, seed), tell)


def _alone_folder(plan: StudyPlan, seed: int) -> Path:
    return plan.runs_folder / f"alone-{folder_name(plan.options.recipe(plan.study, {'seed': seed}))}"


def conclude_study(plan: StudyPlan) -> StudyResult:
    """Read the finished runs and draw the study's conclusions."""
    seeds = plan.options.seeds if plan.study.alone else ()
    alone = {seed: read_alone(_alone_folder(plan, seed))[0] for seed in seeds}
    results = Results(plan.base, tuple(_outcome(plan, planned) for planned in plan.runs), alone)
    findings = plan.study.conclude(results)
    pairs = compare_arms(results, findings.reference) if plan.study.trains else ()
    if pairs:
        tables = (*findings.tables, pairs_table(pairs, results))
        findings = replace(findings, tables=tables, notes=(*findings.notes, *describe_pairs(pairs)))
    return StudyResult(plan, results, findings, pairs)


def is_finished(path: Path, recipe: Recipe) -> bool:
    """Return whether a folder holds this recipe's finished run; another recipe's is refused."""
    folder = RunFolder(path)
    return folder.holds(recipe) and folder.summarised_rounds() == recipe.training.rounds


def folder_name(recipe: Recipe) -> str:
    """Return a readable name that two recipes share only if they are the same but for where the data lie."""
    options = recipe.method.model_dump(mode="json", exclude_defaults=True, exclude={"name"})
    # A recipe of one's own departs from none.
    shipped = load_recipe(recipe.name) if recipe.name in packaged_recipes() else recipe
    changed = {
        key: ours
        for key, (ours, _) in differing_settings([recipe, shipped]).items()
        if not is_of(key, ("method", "seed", "data", "engine", "checkpoint"))
    }
    told = [f"{key.rpartition('.')[2]} {value}" for key, value in {**options, **changed}.items()]
    words = " ".join([recipe.data.name, recipe.method_name, *told]).lower()
    name = re.sub(r"[^a-z0-9.]+", "-", words)[:LONGEST_NAME].strip("-.")
    return f"{name}-seed-{recipe.seed}-{_hash(recipe)}"


def _hash(recipe: Recipe) -> str:
    """Hash what differs from the defaults, so that a new setting with a harmless default keeps old runs of use."""
    tree = recipe.model_dump(mode="json", exclude_defaults=True)
    tree.get("data", {}).pop("folder", None)
    tree["method"] = {"name": recipe.method_name, **recipe.method.model_dump(mode="json", exclude_defaults=True)}
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:8]


def _outcome(plan: StudyPlan, planned: PlannedRun) -> Outcome:
    if not plan.study.trains:
        return Outcome(planned.arm, planned.seed, planned.recipe)
    run = Run.open(plan.runs_folder / folder_name(planned.recipe))
    return Outcome(planned.arm, planned.seed, planned.recipe, run.curve, run.folder.budgets_macs(), run)


def _claim(plan: StudyPlan) -> None:
    """Take the study's folder, or find it taken by the same study."""
    refuse_taken(plan)
    plan.folder.mkdir(parents=True, exist_ok=True)
    write_json(plan.folder / "study.json", _identity(plan))


def refuse_taken(plan: StudyPlan) -> None:
    """Refuse a folder that holds anything but this study; more or other seeds are still the same."""
    file, content = plan.folder / "study.json", _identity(plan)
    if plan.folder.exists() and not plan.folder.is_dir():
        raise InvalidInput(f"--out {plan.folder} is a file: give a folder.")
    if file.is_file():
        try:
            former = dict(json.loads(file.read_text()))
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"{file} is damaged: delete it, and the study writes it anew.") from error
        for key in {**former, **content}:
            if former.get(key) != content.get(key):
                raise InvalidInput(
                    f"--out {plan.folder} holds another study ({key} is {former.get(key)!r} there and "
                    f"{content.get(key)!r} here): give another folder; finished runs are reused all the same."
                )
    elif plan.folder.is_dir() and any(
        one.suffix != ".partial" and one.name != TIMES_FILE for one in plan.folder.iterdir()
    ):
        raise InvalidInput(f"--out {plan.folder} holds other files and no study: give a new or an empty folder.")


def _identity(plan: StudyPlan) -> dict[str, Any]:
    given = {f"--set {key}": value for key, value in plan.options.given().items() if key != "data.folder"}
    rounds = plan.rounds or plan.base.training.rounds
    return {"study": plan.study.name, "recipe": plan.base.name, "rounds": rounds, **given}
