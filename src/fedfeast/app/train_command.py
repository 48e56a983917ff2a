"""Training for a person at a terminal, in one process or in those that torchrun started."""

import shlex
from pathlib import Path

from rich.console import Console

from fedfeast.app.complaint import print_error
from fedfeast.app.progress import LiveProgress
from fedfeast.engines.ranks import LostRank, Ranks, join_ranks
from fedfeast.errors import InvalidInput
from fedfeast.runs import Interrupted, Run
from fedfeast.runs.interrupts import ignore_interrupts


def train_or_explain(recipe: str, out: Path | None, settings: list[str], as_json: bool) -> Run | None:
    """Train with a live display; return the finished run on rank 0. What goes wrong is said once, by one rank."""
    ranks = join_ranks()
    if ranks.size > 1:
        ignore_interrupts()  # torchrun repeats a signal: only training listens, then it saves and speaks undisturbed
    try:
        run = Run.create(recipe, out, settings)
        with LiveProgress(Console(stderr=as_json, quiet=not ranks.leads)) as progress:
            run.train(progress)
    except (InvalidInput, LostRank) as error:
        complaint = error  # the name above ends with its clause
        ranks.say_once(lambda: print_error(complaint))
        raise SystemExit(2 if isinstance(error, InvalidInput) else 1) from None
    except Interrupted as stop:
        if ranks.leads:
            say_how_to_go_on(run, stop, how_to_go_on(recipe, run.folder.path, settings, ranks))
        raise SystemExit(130) from None
    return run if ranks.leads else None


def how_to_go_on(recipe: str, folder: Path, settings: list[str], ranks: Ranks) -> str:
    """Return the command that trains on from the last checkpoint."""
    words = [word for setting in settings for word in ("--set", setting)]
    return shlex.join([*program_of(ranks), "train", recipe, "--out", str(folder), *words])


def program_of(ranks: Ranks) -> list[str]:
    """Return the words with which this program was started."""
    if ranks.size == 1:
        return ["fedfeast"]
    return ["torchrun", "--nproc-per-node", str(ranks.local_size), "-m", "fedfeast"]


def say_how_to_go_on(run: Run, stop: Interrupted, command: str) -> None:
    """Say why training stopped, where it stands, and how it goes on."""
    reason = f"Training cannot go on: {stop.reason}.\n" if stop.reason else ""
    Console(stderr=True).print(
        f"{reason}Stopped after round {stop.finished_rounds} of {run.recipe.training.rounds}; all of it is saved. "
        f"Go on with:\n  {command}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
