"""The server's side: one run in its folder, as in simulation, with a fleet's clients."""

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedfeast.data import class_names_of
from fedfeast.data.tasks import ACCURACY, Metric
from fedfeast.errors import InvalidInput
from fedfeast.flower.engine import FleetClients
from fedfeast.flower.fleet import Fleet
from fedfeast.flower.terms import Terms
from fedfeast.flower.transport import Transport
from fedfeast.own_code import remember, trusting
from fedfeast.presentation.sizes import sizes_in_words
from fedfeast.presentation.tracking import choose_trackers, tracked
from fedfeast.recipes.building import build_method
from fedfeast.recipes.recipe import Recipe, load_recipe, parse_recipe
from fedfeast.runs import Run
from fedfeast.runs.assembly import split_data
from fedfeast.units import format_bytes

LOG = logging.getLogger("fedfeast.fleet")
# Choice: wide enough for honest clients with unequal data (docs/decisions/020); inf refuses no norm.
REFUSE_MULTIPLE = 10.0
# Choice: a robust rule is no better than its weights, which are the clients' own words (docs/decisions/020).
WEIGHT_CAP = 2.0
LOOK_SECONDS = 1.0  # between looks whether the SuperLink is still there
SERVER_APP = "flwr-serverapp"  # Flower's program that runs us for a SuperLink


class LoggedProgress:
    """Says every round in one line of the log."""

    def __init__(self, metric: Metric = ACCURACY) -> None:
        self._rounds, self._metric = 0, metric

    def on_start(self, finished_rounds: int, total_rounds: int, damaged: Sequence[str]) -> None:
        """Say where training begins."""
        self._rounds = total_rounds
        for name in damaged:
            LOG.warning("checkpoint %s is damaged and passed over", name)
        LOG.info("training begins at round %d of %d", finished_rounds + 1, total_rounds)

    def on_round(self, row: dict[str, Any]) -> None:
        """Say what a round brought."""
        losses = "".join(f", {role} loss {loss:.3f}" for role, loss in row["losses"].items())
        answers = f"{len(row['answered'])} of {len(row['clients'])} answered"
        if "ages" in row:
            ages = ", ".join(map(str, row["ages"]))
            answers = f"{len(row['clients'])} asked, {len(row['answered'])} answers merged (of age {ages})"
        score = f", validation {self._metric.named(row['validation_score'])}" if "validation_score" in row else ""
        if row.get("validation_sizes"):
            score += f" (by size {sizes_in_words(row['validation_sizes'], self._metric)})"
        LOG.info(
            "round %d/%d: %s in %.1f s, %s sent and %s returned%s%s",
            row["round"],
            self._rounds,
            answers,
            row["seconds"],
            format_bytes(row["bytes_down"]),
            format_bytes(row["bytes_up"]),
            losses,
            score,
        )

    def on_evaluation(self, measured: int, total: int) -> None:
        """Say when the curve is done."""
        if measured == total:
            LOG.info("curve measured: %d measurements", total)


def fleet_recipe(base: Recipe) -> Recipe:
    """Return the recipe of the run: its clients are the fleet's, every finished round is saved, gross norms refused."""
    if base.adversary.share > 0:
        raise InvalidInput(
            f"adversary.share = {base.adversary.share}: only simulated clients lie on demand; leave it out on a fleet."
        )
    if base.simulation.speeds is not None:
        raise InvalidInput(
            f"simulation.speeds = {base.simulation.speeds!r}: a fleet's clients have speeds of their own; leave it out."
        )
    for setting, file in (("partition.file", base.partition.file), ("data.split_file", base.data.split_file)):
        if file is not None:
            raise InvalidInput(f"{setting} = {file!r} is for clients of one machine: leave it out on a fleet.")
    settings: dict[str, Any] = {"population.source": "fleet", "population.file": "none", "checkpoint.every_rounds": 1}
    if base.population.correlation is not None:
        settings["population.correlation"] = "none"  # of budgets that are dealt out; the fleet's are its own
    # Central privacy clips every change, and must not compare one with those of others.
    if base.aggregation.refuse_multiple is None and base.privacy.mechanism != "central":
        settings["aggregation.refuse_multiple"] = REFUSE_MULTIPLE
    if base.aggregation.weight_cap is None and base.aggregation.rule != "mean":
        settings["aggregation.weight_cap"] = WEIGHT_CAP
    return parse_recipe(base.to_toml(), base.name, settings, base.data.facts)


def serve_run(grid: Grid, recipe: str, settings: Sequence[str], out: Path, track: Sequence[str] = ()) -> Run:
    """Train a recipe over the grid's nodes in a folder, going on where it stands; return the finished run."""
    choose_trackers(track)  # what is wrong with them is said before a folder is made
    base = load_recipe(recipe, settings)
    run = Run.create(fleet_recipe(base), out)
    remember(base.own_code)  # simulated clients, in processes of their own, ask for it before training begins
    with _logging_to(out / "fleet.log"):
        method, _ = build_method(base)
        names = class_names_of(base.data.name, base.data.folder)
        terms = Terms.of(base, method, split_data(run.recipe).normalisation, names)  # the one that the run tests with
        fleet = Fleet(Transport(grid), run.folder, method, terms, base.fleet)
        metrics = out / "metrics.jsonl"
        begun = metrics.read_bytes().count(b"\n") if metrics.is_file() else 0
        fleet.gather(begun)  # the first clients; without any there is no population to speak of
        run = Run.open(out)
        with tracked(run, track, LoggedProgress(run.metric)) as observer:
            run.train(observer, FleetClients(fleet))
        LOG.info("population score %s in %s", run.metric.show(run.population_score), out)
    return run


def main(grid: Grid, context: Context) -> None:
    """Run what the app's configuration names."""
    if Path(sys.argv[0]).name == SERVER_APP:
        end_with_parent()
    config = context.run_config
    settings, track = (_parts(str(config.get(key, ""))) for key in ("settings", "track"))
    out = Path(str(config.get("out") or f"runs/{config['recipe']}-fleet"))
    trusted = trusting() if str(config.get("trust", "")).lower() == "true" else nullcontext()
    try:
        with trusted:
            serve_run(grid, str(config["recipe"]), settings, out, track)
    except InvalidInput as error:
        LOG.error("%s", error)
        raise


def _parts(text: str) -> list[str]:
    """Return what stands one after another between semicolons."""
    return [part.strip() for part in text.split(";") if part.strip()]


def build_server_app() -> ServerApp:
    """Return the app that the SuperLink runs."""
    app = ServerApp()
    app.main()(main)
    return app


def end_with_parent() -> None:
    """End this process, from now on, when the one that started it is gone."""
    # A SuperLink that is stopped does not end its server app, which would knock at its door for minutes and hold the
    # folder meanwhile. Nothing is lost by a hard end: every finished round is saved, and files are written whole.
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_SECONDS)
        LOG.error("the SuperLink is gone: start it and the same run again, and it goes on after the last saved round")
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Write what fedfeast logs to standard output and to a file of the run folder while the block runs."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout), logging.FileHandler(path)]
    log = logging.getLogger("fedfeast")
    log.setLevel(logging.INFO)
    log.propagate = False
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()
