"""A training that trackers watch: they are told in the background, and whatever becomes of them it goes on."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedfeast.errors import InvalidInput
from fedfeast.presentation.tracking.choice import choose_trackers
from fedfeast.presentation.tracking.telling import Telling, one_line
from fedfeast.presentation.tracking.tracker import Tracker
from fedfeast.runs import Observer, Run
from fedfeast.runs.training import Silent

END_SECONDS = 120.0  # that trackers have at a run's end for what they were not yet told
STOP_SECONDS = 10.0  # and where it was stopped


@contextmanager
def tracked(run: Run, trackers: Sequence[str], observer: Observer | None = None) -> Iterator[Observer]:
    """Give an observer for ``run.train`` that also tells trackers, named as --track names them, what it hears."""
    training = TrackedTraining(run, choose_trackers(trackers), observer or Silent())
    try:
        yield training
    except BaseException:
        training.end(None, STOP_SECONDS)
        raise
    training.end_with_report()


def tell_finished(run: Run, trackers: Sequence[str]) -> None:
    """Tell trackers all that they do not have yet of a run that nobody trains now."""
    # What fails is an error below, since nothing else is going on.
    training = TrackedTraining(run, choose_trackers(trackers), Silent(), warn=lambda what: None)
    with run.folder.locked():
        rounds = len(run.folder.metrics())
        for tracker in training.trackers:
            training.begin(tracker, rounds)
        training.end_with_report()
    for telling in training.tellings:
        if telling.failure:
            raise InvalidInput(f"--track {telling.tracker.name} was not told all: {telling.failure}; try again.")


class TrackedTraining:
    """An observer that passes on what it hears, and tells trackers of it."""

    def __init__(
        self, run: Run, trackers: Sequence[Tracker], shown: Observer, warn: Callable[[str], None] | None = None
    ) -> None:
        self.run, self.trackers, self._shown = run, trackers, shown
        self._warn = warn or self._warn_and_go_on
        self.tellings: list[Telling] = []

    def on_start(self, finished_rounds: int, total_rounds: int, damaged: Sequence[str]) -> None:
        """Open the trackers; where training goes on, one that cannot be opened is done without."""
        self._shown.on_start(finished_rounds, total_rounds, damaged)
        for tracker in self.trackers:
            try:
                self.begin(tracker, finished_rounds)
            except InvalidInput as error:
                if finished_rounds == 0:
                    raise
                self._warn(str(error))

    def on_round(self, row: dict[str, Any]) -> None:
        """Tell of a round."""
        self._shown.on_round(row)
        for telling in self.tellings:
            telling.tell(row)

    def on_evaluation(self, measured: int, total: int) -> None:
        """Pass it on: trackers get the summary."""
        self._shown.on_evaluation(measured, total)

    def begin(self, tracker: Tracker, finished_rounds: int) -> None:
        """Open a tracker, and tell it of finished rounds that it does not have."""
        telling = Telling(tracker, self.run, self._warn)
        try:
            telling.begin(finished_rounds)
        except Exception as error:  # a tracker may raise anything
            raise InvalidInput(f"--track {tracker.name} cannot be opened: {one_line(error)}") from error
        self.tellings.append(telling)

    def end_with_report(self) -> None:
        """Write the run's report and hand it to the trackers."""
        if self.tellings:
            from fedfeast.presentation.report import write_report  # drawing takes half a second to import

            report = self.run.folder.path / "report.html"
            write_report([self.run], report)
            self.end(report, END_SECONDS)

    def end(self, report: Path | None, seconds: float) -> None:
        """Tell of the end, and wait so long until all is told."""
        for telling in self.tellings:
            telling.end(report)
        until = time.monotonic() + seconds
        for telling in self.tellings:
            telling.wait(until - time.monotonic())

    def _warn_and_go_on(self, what: str) -> None:
        logging.getLogger("fedfeast").warning(
            "%s; training goes on without it, and fedfeast report %s with the same --track tells it the rest",
            what.rstrip("."),
            self.run.folder.path,
        )
