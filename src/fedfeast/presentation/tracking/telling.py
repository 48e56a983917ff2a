"""One tracker is told of one run, in a thread of its own, so that training neither waits for it nor ends with it."""

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from queue import Queue
from typing import Any

from fedfeast.presentation.tracking.tracker import Told, TrackedRun, Tracker, round_numbers, summary_numbers
from fedfeast.runs import Run
from fedfeast.whole_files import write_json

FOLDER = "tracking"  # of a run, for what trackers keep


class Telling:
    """A tracker's calls, one after another; after the first that fails there are no more."""

    def __init__(self, tracker: Tracker, run: Run, on_failure: Callable[[str], None]) -> None:
        self.tracker, self._run, self._on_failure = tracker, run, on_failure
        self._kept = run.folder.path / FOLDER / f"{tracker.name}.json"
        self._told = Told("", 0)
        self._rounds_before = 0  # that it has from an earlier process
        self._calls: Queue[Callable[[], None] | None] = Queue()
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"{tracker.name} tracker")
        self.failure = ""

    def begin(self, finished_rounds: int) -> None:
        """Open the tracker, and tell it of finished rounds that it does not have."""
        folder = self._run.folder
        subject = TrackedRun(folder.path.name, self._kept.parent, self._run.recipe.settings(), finished_rounds)
        self._told = self.tracker.open(subject, self._read())
        self._rounds_before = self._told.rounds
        self._write()
        self._thread.start()
        for row in folder.metrics():
            self.tell(row)

    def tell(self, row: dict[str, Any]) -> None:
        """Tell of a round, unless it was told before a kill and is repeated after it."""
        number, values = row["round"], round_numbers(row)

        def call() -> None:
            self.tracker.tell_round(number, values)
            self._told = replace(self._told, rounds=number)
            self._write()

        if number > self._rounds_before:
            self._calls.put(call)

    def end(self, report: Path | None) -> None:
        """Tell of the end, where there is a report of it, and close."""
        summary = self._run.summary if self._run.folder.has_summary() else {}
        numbers, is_finished = summary_numbers(summary), report is not None and bool(summary)
        if report is not None:
            self._calls.put(lambda: self.tracker.tell_end(numbers, report))
        self._calls.put(lambda: self.tracker.close(is_finished))
        self._calls.put(None)

    def wait(self, seconds: float) -> None:
        """Wait until all is told; what takes longer is left."""
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive():
            self._fail("it takes too long")

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if not self.failure:
                try:
                    call()
                except Exception as error:  # a tracker may raise anything, and none of it concerns the training
                    self._fail(one_line(error))

    def _fail(self, why: str) -> None:
        """Give the tracker up, and say so once."""
        if not self.failure:
            self.failure = why
            self._on_failure(f"--track {self.tracker.name} fails: {why}")

    def _read(self) -> Told | None:
        """Return what this destination was told before; None where it was told nothing that can be read."""
        try:
            kept = json.loads(self._kept.read_text())
            if kept["where"] == self.tracker.where:
                return Told(str(kept["identity"]), int(kept["rounds"]))
        except (OSError, ValueError, TypeError, KeyError):
            pass
        return None

    def _write(self) -> None:
        self._kept.parent.mkdir(exist_ok=True)
        write_json(self._kept, {"where": self.tracker.where, **asdict(self._told)})


def one_line(error: Exception) -> str:
    """Return the first line of what an error says."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
