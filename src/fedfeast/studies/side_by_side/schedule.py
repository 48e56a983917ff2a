"""Runs side by side: so many processes at a time, watched through their folders, until all runs have ended."""

import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfeast.errors import InvalidInput
from fedfeast.own_code import remember
from fedfeast.presentation.round_reader import RoundReader
from fedfeast.runs import Run
from fedfeast.runs.interrupts import interruptible, uninterrupted
from fedfeast.studies.side_by_side.child import REFUSED, STOPPED
from fedfeast.studies.side_by_side.interpreter import child_variables, python_words
from fedfeast.studies.side_by_side.progress import RunProgress, SideBySideObserver, State, tell_progress
from fedfeast.studies.side_by_side.sharing import PendingRun, Share

CHILD = "fedfeast.studies.side_by_side.child"
LOOK_EVERY_SECONDS = 0.1
STOP_SECONDS = 60.0  # that stopped processes are given to save what they have


@dataclass(frozen=True)
class Failure:
    """A run that did not reach its end, and why."""

    label: str
    reason: str
    is_bad_input: bool = False

    def __str__(self) -> str:
        return f"{self.label}: {self.reason}"


class FailedRuns(Exception):
    """Some runs failed; all others are finished."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        super().__init__("; ".join(map(str, failures)))
        self.failures = tuple(failures)


def run_side_by_side(
    runs: Sequence[PendingRun], share: Share, observer: SideBySideObserver, on_start: Callable[[PendingRun], None]
) -> None:
    """Train all runs, as many at a time as share the device; one that fails does not stop the others.

    An interrupt stops all of them, each saved and ready to go on.
    """
    watched = [_WatchedRun(run) for run in runs]
    waiting, working = deque(watched), list[_WatchedRun]()
    try:
        with interruptible():
            while waiting or working:
                while waiting and len(working) < share.processes:
                    working.append(waiting.popleft())
                    on_start(working[-1].run)
                    working[-1].start(share)
                working = [one for one in working if not one.has_ended()]
                observer.on_progress([one.progress() for one in watched])
                if working:
                    time.sleep(LOOK_EVERY_SECONDS)
    finally:
        with uninterrupted():
            _stop(working)
            observer.on_progress([one.progress() for one in watched])
    failures = [one.failure for one in watched if one.failure is not None]
    if failures:
        raise FailedRuns(failures)


class _WatchedRun:
    """A run, its process while it has one, and how it ended."""

    def __init__(self, run: PendingRun) -> None:
        self.run = run
        self.failure: Failure | None = None
        self._state: State = "waiting"
        self._process: subprocess.Popen[bytes] | None = None
        self._rounds = RoundReader(run.folder / "metrics.jsonl")

    def start(self, share: Share) -> None:
        """Make or reopen the run's folder as training itself does, and start the process that trains in it."""
        run, self._state = self.run, "starting"
        try:
            Run.create(run.recipe, run.folder, at_once=share.at_once)
        except InvalidInput as error:
            self._fail(str(error), is_bad_input=True)
            return
        remember(run.recipe.own_code)  # the process may run what this one may, unless it changes before
        run.log.parent.mkdir(parents=True, exist_ok=True)
        with run.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*python_words(), "-m", CHILD, str(run.folder), *run.track],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=child_variables(share.variables),
                start_new_session=True,  # a terminal's Ctrl-C is for this process, which stops the others in order
            )

    def has_ended(self) -> bool:
        """Return whether no process works on the run any more; take note of how it ended."""
        code = None if self._process is None else self._process.poll()
        if code == 0:
            self._state = "finished"
        elif code is not None:
            self._fail(_explain(code, self.run.log), is_bad_input=code == REFUSED)
        if code is not None:
            self.ask_to_stop()  # and with it this end of the pipe
            self._process = None
        return self._process is None

    def ask_to_stop(self) -> None:
        """Close the process's standard input, at which it saves what it has and ends."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def wait_until(self, deadline: float) -> None:
        """Wait for a process that was asked to stop; kill it when its time is over, since a checkpoint stands."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process, self._state = None, "stopped"

    def progress(self) -> RunProgress:
        """Return where the run stands."""
        return tell_progress(self.run.label, self._state, self.run.recipe.training.rounds, self._rounds.refresh())

    def _fail(self, reason: str, is_bad_input: bool) -> None:
        self._state, self.failure = "failed", Failure(self.run.label, reason, is_bad_input)


def _stop(working: Sequence[_WatchedRun]) -> None:
    """Stop all processes at once, and wait until each has saved what it has."""
    deadline = time.monotonic() + STOP_SECONDS
    for one in working:
        one.ask_to_stop()
    for one in working:
        one.wait_until(deadline)


def _explain(code: int, log: Path) -> str:
    """Say why a process ended with an exit code, by its last words where it had any."""
    said = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if code == REFUSED and said:
        return said[-1]
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}; what it said is in {log}."
    if code == STOPPED:
        return f"its process was asked to stop; what it said is in {log}."
    last = f" ({said[-1]})" if said else ""
    return f"its process ended with exit code {code}{last}; what it said is in {log}."
