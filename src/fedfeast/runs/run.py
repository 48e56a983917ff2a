"""One run, from recipe to summary: the verbs of the command line for Python."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedfeast.data.tasks import Metric
from fedfeast.engines.devices import choose_engine, require_device, require_memory
from fedfeast.engines.ranks import LostRank, join_ranks
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import (
    ClientsValidation,
    ClientWins,
    Curve,
    Evaluator,
    Measured,
    count_client_wins,
    measure_sets,
)
from fedfeast.evaluation.by_clients import KEPT_BACK
from fedfeast.evaluation.evaluator import OnPoint
from fedfeast.evaluation.fairness import Fairness, Participation, measure_fairness
from fedfeast.federation import OperatingPoint, require_accountant
from fedfeast.frames import frame_of
from fedfeast.machine import usable_cores
from fedfeast.networks.built import Builder
from fedfeast.networks.normalisation import Statistics
from fedfeast.own_code import remember
from fedfeast.planning.batching import refuse_idleness, warn_of_idleness
from fedfeast.planning.outline import outline, refuse_larger_cohorts
from fedfeast.planning.own_photos import PHOTO_MINUTES, is_photo_folder, recipe_for_photos
from fedfeast.planning.privacy_noise import measure_noise, warn_of_noise
from fedfeast.recipes.building import build_central_privacy, build_network, builder_settings
from fedfeast.recipes.recipe import Recipe, packaged_recipes, pairs_of, resolve_recipe
from fedfeast.recipes.suitability import MEMBERS
from fedfeast.runs.assembly import Federation, assemble
from fedfeast.runs.builder_trial import warn_of_misfit
from fedfeast.runs.checkpoint import Best, TrainingState
from fedfeast.runs.folder import RunFolder
from fedfeast.runs.interrupts import interruptible, uninterrupted
from fedfeast.runs.kept.size_history import SizeHistory, read_sizes
from fedfeast.runs.notebook import NotebookProgress, in_notebook, run_html
from fedfeast.runs.summary import finished_rows, run_numbers
from fedfeast.runs.time_budget import TimeBudget, TimeLimit, choose_budget, read_budget, sized, write_budget
from fedfeast.runs.training import ClientSource, Observer, Silent, SimulatedClients, train_rounds
from fedfeast.units import format_macs
from fedfeast.whole_files import full_disk_is_said

if TYPE_CHECKING:
    from pandas import DataFrame

# What the columns of clients.csv are, beside the name.
CLIENT_COLUMNS: dict[str, Callable[[str], object]] = {
    "budget_macs": float,
    "num_examples": int,
    "target_share": float,
    "realized_share": float,
    "participates": lambda written: written == "1",
}


class Interrupted(Exception):
    """Training was stopped from outside; everything up to the last finished round is saved."""

    def __init__(self, finished_rounds: int, reason: str = "") -> None:
        super().__init__(f"stopped after round {finished_rounds}{reason and ': '}{reason}")
        self.finished_rounds, self.reason = finished_rounds, reason


class Run:
    """A recipe at work in its folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.recipe: Recipe = folder.recipe()
        self.damage = ""  # which checkpoints could not be read when the best was last asked for, and what stands in

    @classmethod
    def create(
        cls,
        recipe: str | Path | Recipe,
        out: str | Path | None = None,
        settings: Mapping[str, Any] | Sequence[str] = (),
        at_once: int = 1,
        limit: TimeLimit | None = None,
    ) -> "Run":
        """Start a run in a folder (runs/NAME by default), or reopen the same run there.

        A new one takes its part of the cores where several are at work at once, and as many rounds as fit a time limit.
        """
        ranks, loaded = join_ranks(), resolve_recipe(recipe, settings)
        threads = loaded.engine.threads or max(1, usable_cores() // (ranks.local_size * at_once))
        folder = Path(out) if out is not None else Path("runs") / loaded.name
        device = require_device(loaded.engine.device)
        require_memory(device, loaded.engine.memory_gib)
        if loaded.privacy.clip_norm is not None:
            require_accountant()  # before training, not after it
        budget = _time_budget(loaded, RunFolder(folder), limit, dict(pairs_of(settings)), ranks.size)
        if budget is not None:
            loaded = sized(loaded, budget, dict(pairs_of(settings)))
        is_own = loaded.network.builder is not None
        engine = ", ".join(choose_engine(loaded.engine.name, loaded.engine.precision, device, is_own))
        parts = (folder, loaded, threads, device.type, ranks.size, engine)
        run = cls(ranks.from_leader(lambda: RunFolder.create(*parts)))
        if budget is not None and ranks.leads:
            write_budget(folder, budget)
        return run

    @classmethod
    def open(cls, path: str | Path) -> "Run":
        """Open the run in a folder."""
        return cls(RunFolder.open(Path(path)))

    @cached_property
    def federation(self) -> Federation:
        """The assembled parts; loads the data."""
        torch.set_num_threads(self.folder.environment()["threads"])
        self.folder.kept_data.refuse_other(self.recipe.data)
        self.folder.kept_builder.refuse_other(self.recipe)
        return assemble(self.recipe)

    def train(self, observer: Observer | None = None, client_source: ClientSource | None = None) -> "Run":
        """Train to the end from wherever the folder stands, then measure the curves on test and validation set.

        Without a client_source the recipe's clients are simulated.
        """
        ranks = join_ranks()
        shown = self._shown(observer) if ranks.leads else Silent()
        try:
            with ExitStack() as stack:
                kept = f"{self.folder.how_to_go_on()}; nothing before the last checkpoint is lost"
                stack.enter_context(full_disk_is_said(self.folder.path, kept))
                ranks.from_leader(lambda: stack.enter_context(self.folder.locked()))
                stack.enter_context(interruptible())
                federation = self.federation
                ranks.from_leader(lambda: remember(self.recipe.own_code))
                ranks.from_leader(lambda: None if self.folder.has_finished_rounds() else self._check_start())
                ranks.from_leader(lambda: self.folder.kept_data.keep(self.recipe.data))
                ranks.from_leader(lambda: self.folder.write_clients(federation.client_table()))
                work = client_source or SimulatedClients()
                state, self.federation = train_rounds(federation, self.folder, shown, ranks, work)
                ranks.from_leader(lambda: self._finish(state, shown))
        except (KeyboardInterrupt, LostRank) as stop:
            raise Interrupted(self._saved_rounds() if ranks.leads else 0, str(stop)) from stop
        return self

    def evaluate(self, observer: Observer | None = None) -> Curve:
        """Measure every operating point of the best checkpoint; return the curve on the test set."""
        again = f"run fedfeast evaluate {self.folder.path} again"
        with full_disk_is_said(self.folder.path, again), self.folder.locked(), interruptible():
            return self._summarise(self._shown(observer))

    def __repr__(self) -> str:
        return f"Run({str(self.folder.path)!r})"

    def _repr_html_(self) -> str:
        return run_html(self.folder)

    @property
    def history(self) -> "DataFrame":
        """The finished rounds as a DataFrame by round, a column for every loss: ``loss.teacher`` and so on."""
        rows = self.folder.metrics() if self.folder.has_finished_rounds() else []
        flat = [
            {
                **{key: value for key, value in row.items() if key != "losses"},
                **{f"loss.{role}": loss for role, loss in row["losses"].items()},
            }
            for row in rows
        ]
        return frame_of(flat, "round", without="run.folder.metrics()")

    @property
    def clients(self) -> "DataFrame":
        """The clients as a DataFrame by name: budget, examples, shares, and whether each takes part."""
        rows = [
            {**row, **{column: kind(row[column]) for column, kind in CLIENT_COLUMNS.items()}}
            for row in self.folder.clients()
        ]
        return frame_of(rows, "name", without="run.folder.clients()")

    @property
    def time_budget(self) -> TimeBudget | None:
        """The time that its rounds were chosen by; None where their number was given."""
        return read_budget(self.folder.path)

    @property
    def curve(self) -> Curve:
        """The measured curve on the test set."""
        return self.folder.curve()

    @property
    def metric(self) -> Metric:
        """The metric by which the run's networks are judged."""
        return self.recipe.metric

    @property
    def size_history(self) -> SizeHistory:
        """What each validated size came to while training, by name and round, least MACs first."""
        return read_sizes(self.folder.metrics())

    @property
    def summary(self) -> dict[str, Any]:
        """The finished run in numbers."""
        return self.folder.summary()

    @property
    def population_score(self) -> float:
        """The mean of the metric on the test set over clients, each with the largest variant it affords."""
        return self.curve.population_score(self.folder.budgets_macs())

    @property
    def population_score_best(self) -> float:
        """The same where each client has the best of the variants that it affords."""
        return self.curve.population_score(self.folder.budgets_macs(), "best")

    @property
    def fairness(self) -> Fairness:
        """Who took part, who was refused or late, and what clients get, by tenths of their budgets."""
        rows = self.folder.metrics() if self.folder.has_finished_rounds() else []
        curve = self.curve if self.folder.has_summary() else None
        return self._measure_fairness(rows, curve, self.folder.own_values())

    def client_wins(self, other: "Run") -> ClientWins:
        """Count on how many clients this run serves better than another one of the same population."""
        budgets, others = self.folder.budgets_macs(), other.folder.budgets_macs()
        if budgets.shape != others.shape or not bool((budgets == others).all()):
            raise InvalidInput(
                f"{self.folder.path} and {other.folder.path} have different populations: "
                "client wins need the same clients."
            )
        if self.recipe.data.name != other.recipe.data.name:
            raise InvalidInput(
                f"{self.folder.path} is on {self.recipe.data.name} and {other.folder.path} "
                f"on {other.recipe.data.name}: client wins need the same data set."
            )
        if self.summary.get("curve_from") != other.summary.get("curve_from"):
            raise InvalidInput(
                f"one of {self.folder.path} and {other.folder.path} was measured on {KEPT_BACK} and the other on a "
                "test set: client wins need the same examples."
            )
        return count_client_wins(self.curve, other.curve, budgets)

    def _shown(self, observer: Observer | None) -> Observer:
        """Return who is told of progress: in a notebook a line below the cell, unless somebody else is."""
        if observer is not None:
            return observer
        return NotebookProgress(self.metric) if in_notebook() else Silent()

    def _finish(self, state: TrainingState, observer: Observer) -> None:
        """Measure the test curve unless the summary already stands for the finished rounds."""
        if self.folder.summarised_rounds() != state.finished_rounds:
            self._summarise(observer)

    def _check_start(self) -> None:
        """Refuse what a run that has begun may go on with; warn of a network that misfits and of too much noise."""
        federation, recipe = self.federation, self.recipe
        refuse_larger_cohorts(recipe, federation.population)
        warn_of_misfit(federation)
        if recipe.population.source == "fleet":
            return  # who will join is not known yet
        refuse_idleness(recipe.training, federation.participating_sizes)
        warn_of_idleness(recipe.training, federation.participating_sizes)
        if recipe.privacy.clip_norm is not None:
            noise = measure_noise(outline(recipe), federation.partition.shards.sizes)
            warn_of_noise(noise, recipe.privacy.noise_multiplier)

    def _saved_rounds(self) -> int:
        with uninterrupted():
            state, _ = self.folder.checkpoints.load_latest()
        return state.finished_rounds if state else 0

    def _summarise(self, observer: Observer) -> Curve:
        state, best = self._validated_state()
        self._refuse_to_replace_better(best)
        rows, federation = finished_rows(self.folder, state), self.federation
        self.folder.checkpoints.require_size(best.flat, federation.method.network.layout.size)
        points = federation.method.operating_points()
        if not federation.tests:
            self._refuse_to_replace_tests()
        validation, measured = self._measure(best, points, observer)
        curve = next((one.curve for one in measured.values()), validation)
        numbers = {
            **run_numbers(self.federation, self.folder, state, rows, best, curve),
            "validation_curve": validation.rows(),
        }
        if not measured:
            numbers["curve_from"] = KEPT_BACK
        if any(one.clients for one in measured.values()):
            numbers["test_sets"] = {name: one.summary() for name, one in measured.items()}
            self.folder.write_client_values(measured)
        self.folder.kept_examples.save(next((one.right for one in measured.values()), None))
        fairness = self._measure_fairness(rows, curve, self.folder.own_values())
        numbers["fairness"] = fairness.facts()
        self.folder.write_summary(numbers, curve)
        return curve

    def _measure_fairness(
        self, rows: Sequence[Mapping[str, Any]], curve: Curve | None, own_values: Mapping[str, Sequence[float]]
    ) -> Fairness:
        clients = self.folder.clients()
        # Central privacy counts on a draw that stays unknown, and reports and pages are for everybody.
        hidden = build_central_privacy(self.recipe) is not None
        taking_part = None if hidden else Participation.of(rows, [row["name"] for row in clients])
        return measure_fairness(clients, taking_part, self.metric, curve, own_values)

    def _measure(
        self, best: Best, points: Sequence[OperatingPoint], observer: Observer
    ) -> tuple[Curve, dict[str, Measured]]:
        """Return the validation curve, and what was measured on the test sets, by their names."""
        validation, method, tests = self.federation.validation, self.federation.method, self.federation.tests
        by_server = isinstance(validation, Evaluator)
        total = (2 if tests and not by_server else 1) * len(points)
        flat, done = best.flat.to(self.federation.device), iter(range(total))

        def tell(point: OperatingPoint) -> None:
            observer.on_evaluation(next(done), total)

        if isinstance(validation, Evaluator):
            # The sets share the server's calibration examples, so that a network is recalibrated once.
            sets = {"validation": validation} | {f"test {name}": evaluator for name, evaluator in tests.items()}
            both = measure_sets(sets, method, flat, points, tell)
            curve, measured = both["validation"].curve, {name: both[f"test {name}"] for name in tests}
        else:
            curve, known = self._measure_validation(best, points, tell)
            measured = measure_sets(tests, method, flat, points, tell, known) if tests else {}
        observer.on_evaluation(total, total)
        return curve, measured

    def _measure_validation(
        self, best: Best, points: Sequence[OperatingPoint], tell: OnPoint
    ) -> tuple[Curve, Mapping[str, Statistics]]:
        """Return the validation curve, and the statistics that clients gave, which the run then keeps."""
        validation, method = self.federation.validation, self.federation.method
        flat = best.flat.to(self.federation.device)
        if not isinstance(validation, ClientsValidation):
            return validation.curve(method, flat, points, tell), {}
        if validation.asks_nobody:
            # A fleet's run without its fleet: what was measured when it ended still holds for the same weights.
            return self._kept_validation(best), self.statistics_by_clients(best)
        measured = validation.measure(method, flat, points, tell)
        self.folder.kept_statistics.save(best.finished_rounds, measured.statistics)
        return measured.curve, self.statistics_by_clients(best)

    def _kept_validation(self, best: Best) -> Curve:
        """Return the clients' curve as it was measured when training ended; without a test set there must be one."""
        summary = self.folder.summary() if self.folder.has_summary() else {}
        if not self.federation.tests and summary.get("best_round") != best.finished_rounds:
            raise InvalidInput(
                f"{self.folder.path} has no curve of these weights, and neither its clients nor a test set are here: "
                "start the fleet's run again, and it is measured at the end."
            )
        return Curve.read(summary.get("validation_curve", []), summary)

    def _refuse_to_replace_tests(self) -> None:
        """Refuse to write the clients' curve over one that was measured on a test set which is not here now."""
        if self.folder.summarised_rounds() is not None and "curve_from" not in self.folder.summary():
            raise InvalidInput(
                f"the curve of {self.folder.path} was measured on a test set, and the data set "
                f"{self.recipe.data.name!r} is not here: point data.folder (or $FEDFEAST_DATA) at the folder that "
                "holds it."
            )

    def statistics_by_clients(self, best: Best) -> Mapping[str, Statistics]:
        """Return the served statistics of the best weights that clients gave, by network; none where they did not."""
        if self.recipe.evaluation.by != "clients":
            return {}
        return self.folder.kept_statistics.load(best.finished_rounds, self.federation.device)

    def best(self) -> Best:
        """Return the weights of the best validated round."""
        return self._validated_state()[1]

    def _validated_state(self) -> tuple[TrainingState, Best]:
        state, damaged = self.folder.checkpoints.load_latest()
        if damaged and (state is None or state.best is None):
            raise InvalidInput(
                f"{', '.join(damaged)} in {self.folder.checkpoints.folder} is damaged, and no other validated round is "
                f"left: restore it, or {self.folder.how_to_go_on()}."
            )
        if state is None or state.best is None:
            raise InvalidInput(f"{self.folder.path} has no validated round yet: {self.folder.how_to_go_on()}.")
        if damaged:
            self.damage = (
                f"{', '.join(damaged)} is damaged: the best round that is left is {state.best.finished_rounds}"
            )
            logging.getLogger("fedfeast").warning("%s", self.damage)
        return state, state.best

    def _refuse_to_replace_better(self, best: Best) -> None:
        """Refuse to write a summary of an older round over that of one whose checkpoint is damaged now."""
        summarised = self.folder.summary().get("best_round") if self.folder.summarised_rounds() is not None else None
        if self.damage and summarised is not None and summarised != best.finished_rounds:
            raise InvalidInput(
                f"{self.damage}, and {self.folder.path / 'summary.json'} is of round {summarised}: restore the "
                "checkpoint, or move the summary away to measure what is left."
            )


def train(
    recipe: str | Path | Recipe,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    observer: Observer | None = None,
    network: Builder | None = None,
    minutes: float | None = None,
) -> Run:
    """Train a recipe in a folder, going on where the folder's last checkpoint stands; return the finished run.

    A folder of photos, CLASS/PHOTOS, stands for the recipe small-images on them. A network is what ``elastic`` made of
    a constructor; it stands in for the recipe's own. ``minutes`` choose the number of rounds. In a notebook a line
    below the cell shows the progress, unless there is an observer.
    """
    limit = None if minutes is None else TimeLimit(minutes)
    if not isinstance(network, Builder | None):
        given = type(network).__name__
        raise InvalidInput(f"network is a {given} and no builder: decorate its function with fedfeast.elastic(...).")
    if network is not None:
        # The recipe's cache is of its own network's sizes; those of another one are chosen anew, unless listed.
        settings = {"variants.cache": MEMBERS, **dict(pairs_of(settings)), **builder_settings(network)}
        settings |= _reaching_budgets(recipe, settings)
    if is_photo_folder(recipe):
        stands_for = recipe_for_photos(str(recipe), settings)
        recipe, settings = stands_for.recipe, {**stands_for.settings, **dict(pairs_of(settings))}
        limit = limit or photo_limit(settings)
    return Run.create(recipe, out, settings, limit=limit).train(observer)


def photo_limit(settings: Mapping[str, Any] | Sequence[str]) -> TimeLimit | None:
    """Return the time that training on a folder of photos takes where neither it nor a number of rounds is given."""
    is_set = any(key in ("training", "training.rounds") for key, _ in pairs_of(settings))
    return None if is_set else TimeLimit(PHOTO_MINUTES)


def _time_budget(
    recipe: Recipe, folder: RunFolder, limit: TimeLimit | None, given: Mapping[str, Any], processes: int
) -> TimeBudget | None:
    """Return by which time a run's rounds are chosen; only a run in one process can be tried beforehand."""
    if limit is not None and processes > 1:
        raise InvalidInput(f"--minutes is for one process, and there are {processes}: set training.rounds.")
    return choose_budget(recipe, folder.path, folder.has_finished_rounds(), limit, given)


def _reaching_budgets(recipe: str | Path | Recipe, settings: Mapping[str, Any]) -> dict[str, float]:
    """Return budgets over the sizes of the settings' network where a shipped recipe's own are below all of them."""
    if recipe not in packaged_recipes() or settings.keys() & {"population", "population.least_macs"}:
        return {}
    loaded = resolve_recipe(recipe, settings)
    section, network = loaded.population, build_network(loaded)
    least, greatest = (float(network.macs(one)) for one in (network.smallest, network.largest))
    is_drawn = section.source in ("zipf", "data") and section.file is None and section.below_smallest == "error"
    if not is_drawn or section.least_macs >= least:
        return {}
    # They were chosen for the recipe's own network.
    reached = max(float(settings.get("population.greatest_macs", greatest)), least)
    logging.getLogger("fedfeast").warning(
        "budgets of %s begin at %s MACs, below this network's smallest: they now range from %s to %s MACs",
        *(recipe, *map(format_macs, (section.least_macs, least, reached))),
    )
    return {"population.least_macs": least, "population.greatest_macs": reached}


def evaluate(path: str | Path) -> Curve:
    """Measure every operating point of a run's best checkpoint on the test set."""
    return Run.open(path).evaluate()
