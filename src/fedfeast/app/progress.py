"""The live display of long work."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from fedfeast.app.output import show

if TYPE_CHECKING:
    from fedfeast.data.tasks import Metric

PLAIN_EVERY_SECONDS = 10.0  # between lines where there is no terminal


class _Display:
    """Progress bars on a terminal; now and then a line elsewhere."""

    def __init__(self, console: Console, *columns: ProgressColumn) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *(columns or (MofNCompleteColumn(), TextColumn("{task.fields[detail]}"))),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def _plain_line(self, text: str, last: bool = False) -> None:
        now = time.monotonic()
        if not self._console.is_terminal and (last or now - self._last_line >= PLAIN_EVERY_SECONDS):
            self._console.print(text, highlight=False, soft_wrap=True)
            self._last_line = now


class LiveProgress(_Display):
    """Shows a run: its rounds, then its test curve."""

    def __init__(self, console: Console, metric: "Metric | None" = None) -> None:
        super().__init__(console)
        self._metric = metric  # of the validated scores; without it accuracy
        self._task: TaskID | None = None
        self._total = 0
        self._validation = ""

    def on_start(self, finished_rounds: int, total_rounds: int, damaged: Sequence[str]) -> None:
        """Begin the bar at the finished rounds; name checkpoints that were passed over."""
        for name in damaged:
            self._console.print(f"[yellow]checkpoint {escape(name)} is damaged and passed over[/]")
        if 0 < finished_rounds < total_rounds:
            self._console.print(f"going on after round {finished_rounds}")
        self._total = total_rounds
        self._task = self._progress.add_task("training", total=total_rounds, completed=finished_rounds, detail="")

    def on_round(self, row: dict[str, Any]) -> None:
        """Advance by one round and show its mean loss and the latest validation score."""
        if "validation_score" in row:
            score = row["validation_score"]
            shown = f"{100 * score:.1f} %" if self._metric is None else self._metric.named(score)
            self._validation = f"  validation {shown}"
        detail = "loss " + " ".join(f"{role} {loss:.3f}" for role, loss in row["losses"].items()) + self._validation
        if self._task is not None:
            self._progress.update(self._task, completed=row["round"], detail=detail)
        self._plain_line(f"round {row['round']}/{self._total}  {detail}", row["round"] == self._total)

    def on_evaluation(self, measured: int, total: int) -> None:
        """Show how many operating points are measured."""
        if measured == 0:
            self._task = self._progress.add_task("test curve", total=total, detail="")
        if self._task is not None:
            self._progress.update(self._task, completed=measured)
        self._plain_line(f"test curve {measured}/{total}", measured == total)


class StudyProgress(LiveProgress):
    """Shows a study: which of its runs is at work, and that run."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.current = ""  # what is said of a study that was stopped

    def judge_by(self, metric: "Metric") -> None:
        """Show validated scores as what they are."""
        self._metric = metric

    def on_run(self, number: int, total: int, name: str, reused: bool) -> None:
        """Name the run in a line that stays, and clear away the bars of the one before."""
        for task in self._progress.task_ids:
            self._progress.remove_task(task)
        self._validation = ""
        self.current = f"run {number} of {total} ({name})"
        said = f"run {number} of {total}  {name}{', finished before' if reused else ''}"
        show(self._console, said)


class CountedProgress(_Display):
    """Shows a known number of pieces of work."""

    def __init__(self, console: Console, description: str, total: int) -> None:
        super().__init__(console)
        self._description, self._total, self._done = description, total, 0
        self._task = self._progress.add_task(description, total=total, detail="")

    def advance(self, detail: str) -> None:
        """Count one more piece as done."""
        self._done += 1
        self._progress.update(self._task, completed=self._done, detail=detail)
        self._plain_line(f"{self._description} {self._done}/{self._total}  {detail}")


class ShareProgress(_Display):
    """Shows how much of each kind of work is done, on a terminal alone."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, TextColumn("{task.percentage:>3.0f} %"))
        self._tasks: dict[str, TaskID] = {}

    def show(self, what: str, done: int, total: int) -> None:
        """Show how much of a piece of work is done."""
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(escape(what), total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)
