"""TensorBoard: events in a folder, while a run trains or of its history."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedfeast.errors import InvalidInput
from fedfeast.presentation.tracking.tracker import Told, TrackedRun, round_numbers
from fedfeast.runs import Run

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

# What events are called since the first release, by the beginning of the name in metrics.jsonl.
EVENT_NAMES = {
    "losses/": "loss/",
    "learning_rate": "learning rate",
    "validation_scores/": "validation population score/",
    "validation_score": "validation population score",
    "validation_sizes/": "validation by size/",
}


def event_name(metric: str) -> str:
    """Return what a metric is called among the events."""
    for beginning, called in EVENT_NAMES.items():
        if metric == beginning or (beginning.endswith("/") and metric.startswith(beginning)):
            return called + metric.removeprefix(beginning)
    return metric


class TensorBoardTracker:
    """Writes events below a folder, or below the run's own."""

    name = "tensorboard"

    def __init__(self, where: str | None = None) -> None:
        self._folder = where
        self._writer: SummaryWriter | None = None

    @property
    def where(self) -> str:
        """The folder that was named."""
        return self._folder or "the run's folder"

    def open(self, run: TrackedRun, told: Told | None) -> Told:
        """Begin or go on with a file of events; rounds that will be repeated are taken back."""
        folder = run.folder / "tensorboard" if self._folder is None else Path(self._folder) / run.name
        is_there = told is not None and any(folder.glob("events.*"))
        rounds = min(told.rounds, run.finished_rounds) if told is not None and is_there else 0
        self._writer = _writer(folder, rounds + 1)
        if not is_there:
            lines = [f"| {key} | {value} |" for key, value in run.settings.items()]
            self._writer.add_text("recipe", "\n".join(["| field | value |", "|---|---|", *lines]))
        return Told(str(folder), rounds)

    def tell_round(self, round_number: int, values: Mapping[str, float]) -> None:
        """Write a round's events, for those who watch."""
        assert self._writer is not None
        for name, value in values.items():
            self._writer.add_scalar(event_name(name), value, round_number)
        self._writer.flush()

    def tell_end(self, summary: Mapping[str, float], report: Path) -> None:
        """Write the summary's numbers; TensorBoard keeps no files, and the report stays in the run's folder."""
        self.tell_round(int(summary.get("summary/finished_rounds", 0)), summary)

    def close(self, finished: bool) -> None:
        """Close the file."""
        assert self._writer is not None
        self._writer.close()


def write_events(runs: Sequence[Run], folder: Path) -> None:
    """Write the history of every run as events below the folder."""
    for run in runs:
        with _writer(folder / run.folder.path.name) as writer:
            for row in run.folder.metrics():
                for name, value in round_numbers(row).items():
                    writer.add_scalar(event_name(name), value, row["round"])


def _writer(folder: Path, first_round: int | None = None) -> "SummaryWriter":
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InvalidInput("--tensorboard needs the tensorboard package: pip install 'fedfeast[track]'.") from error
    return SummaryWriter(str(folder), purge_step=first_round)
