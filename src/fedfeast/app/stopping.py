"""What ends a training early, in one process or in those that torchrun started: said once, with the way to go on."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fedfeast.app.output import console_for, print_error, show
from fedfeast.engines.ranks import LostRank, Ranks, join_ranks
from fedfeast.errors import InvalidInput
from fedfeast.runs import Interrupted
from fedfeast.runs.interrupts import ignore_interrupts


def join_training() -> Ranks:
    """Join the processes of this training; among several, only training itself listens to signals."""
    ranks = join_ranks()
    if ranks.size > 1:
        ignore_interrupts()  # torchrun repeats a signal: training saves at the first and speaks undisturbed
    return ranks


@contextmanager
def errors_said_once(ranks: Ranks) -> Iterator[None]:
    """End with exit code 2 after bad input and with 1 after a lost process, in one sentence of one rank."""
    try:
        yield
    except (InvalidInput, LostRank) as error:
        complaint = error  # the name above ends with its clause
        ranks.say_once(lambda: print_error(complaint))
        raise SystemExit(2 if isinstance(error, InvalidInput) else 1) from None


@contextmanager
def stops_explained(
    ranks: Ranks,
    words: Sequence[str],
    where: Callable[[str], str],
    stops: tuple[type[BaseException], ...] = (Interrupted,),
) -> Iterator[None]:
    """End with exit code 130 where the block was stopped: say where, given the last round, and which words go on."""
    try:
        yield
    except stops as stop:
        if ranks.leads:
            finished = f"after round {stop.finished_rounds}" if isinstance(stop, Interrupted) else ""
            reason = stop.reason if isinstance(stop, Interrupted) else ""
            why = f"Training cannot go on: {reason}.\n" if reason else ""
            command = command_line(ranks, words)
            show(console_for(True), f"{why}Stopped {where(finished)}; all of it is saved. Go on with:\n  {command}")
        raise SystemExit(130) from None


def command_line(ranks: Ranks, words: Sequence[str]) -> str:
    """Return the words after the program that was started, as a shell takes them."""
    alone = ranks.size == 1
    program = ["fedfeast"] if alone else ["torchrun", "--nproc-per-node", str(ranks.local_size), "-m", "fedfeast"]
    return shlex.join([*program, *words])
