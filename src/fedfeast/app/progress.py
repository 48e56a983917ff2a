"""The live display of long work."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, RenderableType
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
from rich.table import Column, Table
from rich.text import Text

from fedfeast.app.output import show

if TYPE_CHECKING:
    from fedfeast.data.tasks import Metric
    from fedfeast.studies import RunProgress

PLAIN_EVERY_SECONDS = 10.0  # between lines where there is no terminal
PACE_SECONDS = 1800.0  # over which the remaining time is estimated: a round alone may take minutes
MOST_NAME_COLUMNS = 24  # of what is being done
OTHER_COLUMNS = MOST_NAME_COLUMNS + len(" 10000/10000 0:00:00 ")  # all but the bar
LEAST_BAR_COLUMNS = 10


class _Bars(Progress):
    """A bar with its numbers for each task, and below all of them what else there is to say, whatever its length."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bars, and a line for each task that has something to say, named where there are several."""
        yield self.make_tasks_table(self.tasks)
        telling = [task for task in self.tasks if task.visible and task.fields.get("detail")]
        for task in telling:
            name = f"{task.description}: " if len(self.tasks) > 1 else ""
            yield Text.from_markup(f"{name}{escape(task.fields['detail'])}")
        for task in self.tasks:
            if task.visible and task.fields.get("cells"):
                yield _table_of(task.fields["cells"])


def _table_of(rows: Sequence[Sequence[str]]) -> Table:
    """Return rows of cells as a table, the first column of words and the others of numbers."""
    table = Table.grid(padding=(0, 2))
    for place, _ in enumerate(rows[0]):
        table.add_column(justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


class _Display:
    """Progress bars on a terminal, from 60 columns on; now and then a line elsewhere."""

    def __init__(self, console: Console, *columns: ProgressColumn) -> None:
        self._console = console
        short = Column(no_wrap=True, overflow="ellipsis", max_width=MOST_NAME_COLUMNS)
        self._progress = _Bars(
            TextColumn("{task.description}", table_column=short),
            BarColumn(bar_width=min(40, max(LEAST_BAR_COLUMNS, console.width - OTHER_COLUMNS))),
            *(columns or (MofNCompleteColumn(),)),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=PACE_SECONDS,
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

    def __init__(
        self, console: Console, metric: "Metric | None" = None, cost: Callable[[int], object] | None = None
    ) -> None:
        super().__init__(console)
        self._metric = metric  # of the validated scores; without it accuracy
        self._cost = cost  # what so many rounds cost, said before the first
        self._task: TaskID | None = None
        self._total = 0
        self._validation = ""
        self._sizes: Sequence[Mapping[str, Any]] = ()  # what they came to in the last validation

    def on_start(self, finished_rounds: int, total_rounds: int, damaged: Sequence[str]) -> None:
        """Begin the bar at the finished rounds; name checkpoints that were passed over."""
        for name in damaged:
            self._console.print(f"[yellow]checkpoint {escape(name)} is damaged and passed over[/]")
        if 0 < finished_rounds < total_rounds:
            self._console.print(f"going on after round {finished_rounds}")
        if self._cost is not None and finished_rounds < total_rounds:
            show(self._console, str(self._cost(total_rounds - finished_rounds)))
        self._total = total_rounds
        self._task = self._progress.add_task("training", total=total_rounds, completed=finished_rounds, detail="")

    def on_round(self, row: dict[str, Any]) -> None:
        """Advance by one round and show its mean loss and the latest validation score."""
        if "validation_score" in row:
            score = row["validation_score"]
            shown = f"{100 * score:.1f} %" if self._metric is None else self._metric.named(score)
            self._validation = f"  validation {shown}"
            self._sizes = row.get("validation_sizes", [])
        detail = "loss " + " ".join(f"{role} {loss:.3f}" for role, loss in row["losses"].items()) + self._validation
        cells, words = self._shown_sizes()
        if self._task is not None:
            self._progress.update(self._task, completed=row["round"], detail=detail, cells=cells)
        self._plain_line(f"round {row['round']}/{self._total}  {detail}{words}", row["round"] == self._total)

    def on_evaluation(self, measured: int, total: int) -> None:
        """Show how many operating points are measured."""
        if measured == 0:
            self._task = self._progress.add_task("test curve", total=total, detail="")
        if self._task is not None:
            self._progress.update(self._task, completed=measured)
        self._plain_line(f"test curve {measured}/{total}", measured == total)

    def _shown_sizes(self) -> tuple[list[list[str]], str]:
        """Return what sizes came to as cells of a table, and as words."""
        if not self._sizes:
            return [], ""
        # With torch, which a run has loaded and --help has not.
        from fedfeast.data.tasks import ACCURACY
        from fedfeast.presentation.sizes import size_cells, sizes_in_words

        metric = self._metric or ACCURACY
        words = f"  by size {sizes_in_words(self._sizes, metric)}"
        return size_cells(self._sizes, metric, self._console.width), words


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
        self._validation, self._sizes = "", ()
        self.current = f"run {number} of {total} ({name})"
        said = f"run {number} of {total}  {name}{', finished before' if reused else ''}"
        show(self._console, said)

    def on_device_shared(self, sentence: str) -> None:
        """Show nothing: it is of runs in processes of their own."""

    def on_progress(self, runs: Sequence["RunProgress"]) -> None:
        """Show nothing: it is of runs in processes of their own."""


class SideBySideProgress(_Display):
    """Shows a study whose runs share a device: a line for each at work, and one for all of them."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.current = ""  # what is said of a study that was stopped
        self._metric: Metric | None = None
        self._tasks: dict[str, TaskID] = {}
        self._said: set[str] = set()  # the runs whose end was told
        self._began: tuple[float, int] | None = None  # when, and after how many rounds of all runs

    def judge_by(self, metric: "Metric") -> None:
        """Show validated scores as what they are."""
        self._metric = metric

    def on_run(self, number: int, total: int, name: str, reused: bool) -> None:
        """Name a run that begins or was found finished, in a line that stays."""
        show(self._console, f"run {number} of {total}  {name}{', finished before' if reused else ''}")

    def on_device_shared(self, sentence: str) -> None:
        """Say what the runs share."""
        show(self._console, sentence)

    def on_progress(self, runs: Sequence["RunProgress"]) -> None:
        """Show where the runs at work stand, and how much is left of all of them."""
        done, total = sum(one.finished_rounds for one in runs), sum(one.total_rounds for one in runs)
        self._began = self._began or (time.monotonic(), done)
        working = [one for one in runs if one.is_at_work]
        if working:
            self.current = " and ".join(f"{one.label} (after round {one.finished_rounds})" for one in working)
        for one in runs:
            self._show_end(one)
        for one in working:
            self._bar(one.label, one.finished_rounds, one.total_rounds, self._detail(one))
        self._bar("all runs", done, total, "")
        lines = [f"{one.label}  round {one.finished_rounds}/{one.total_rounds}{self._detail(one)}" for one in working]
        left = self._left(done, total)
        self._plain_line(escape("\n".join([*lines, f"all runs  round {done}/{total}{left}"])))

    def on_start(self, finished_rounds: int, total_rounds: int, damaged: Sequence[str]) -> None:
        """Show nothing: it is of a run in this process."""

    def on_round(self, row: dict[str, Any]) -> None:
        """Show nothing: it is of a run in this process."""

    def on_evaluation(self, measured: int, total: int) -> None:
        """Show nothing: it is of a run in this process."""

    def _show_end(self, run: "RunProgress") -> None:
        """Say once that a run is finished or failed, and take its bar away."""
        if run.state not in ("finished", "failed") or run.label in self._said:
            return
        self._said.add(run.label)
        if run.label in self._tasks:
            self._progress.remove_task(self._tasks.pop(run.label))
        show(self._console, f"{run.label} {run.state} after round {run.finished_rounds}{self._detail(run)}")

    def _bar(self, name: str, done: int, total: int, detail: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(escape(name), total=total, completed=done, detail="")
        self._progress.update(self._tasks[name], completed=done, detail=detail.strip())

    def _detail(self, run: "RunProgress") -> str:
        """Return a round's time, the last score and what is being done, each after two blanks."""
        parts = [] if run.seconds_per_round is None else [f"{run.seconds_per_round:.2f} s a round"]
        if run.validation_score is not None and self._metric is not None:
            parts.append(f"validation {self._metric.named(run.validation_score)}")
        parts += {"starting": ["starting"], "measuring": ["test curve"]}.get(run.state, [])
        return "".join(f"  {part}" for part in parts)

    def _left(self, done: int, total: int) -> str:
        """Return how long the rest will take at the pace so far."""
        assert self._began is not None
        began, before = self._began
        if done <= before:
            return ""
        seconds = (time.monotonic() - began) * (total - done) / (done - before)
        return f"  about {timedelta(seconds=round(seconds))} left"


class CountedProgress(_Display):
    """Shows a known number of pieces of work."""

    def __init__(self, console: Console, description: str, total: int) -> None:
        super().__init__(console)
        self._description, self._total, self._done = description, total, 0
        self._task = self._progress.add_task(description, total=total, detail="")

    def advance(self, detail: str, total: int | None = None) -> None:
        """Count one more piece as done; the total may turn out to be another."""
        self._done += 1
        self._total = self._total if total is None else total
        self._progress.update(self._task, completed=self._done, total=self._total, detail=detail)
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
