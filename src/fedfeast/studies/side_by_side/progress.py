"""What is told of runs side by side: where each of them stands, read from its folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, Protocol

from fedfeast.presentation.round_reader import Row

RECENT_ROUNDS = 10  # whose mean time is told

State = Literal["waiting", "starting", "training", "measuring", "stopped", "finished", "failed"]


@dataclass(frozen=True)
class RunProgress:
    """Where one run stands."""

    label: str
    state: State
    finished_rounds: int
    total_rounds: int
    seconds_per_round: float | None = None  # of the last few
    validation_score: float | None = None  # the last

    @property
    def is_at_work(self) -> bool:
        """Whether a process works on it."""
        return self.state in ("starting", "training", "measuring")


class SideBySideObserver(Protocol):
    """Is told of runs that share a device."""

    def on_device_shared(self, sentence: str) -> None:
        """How many runs share which device, and what each gets of it."""
        ...

    def on_progress(self, runs: Sequence[RunProgress]) -> None:
        """Where all runs stand, several times a second."""
        ...


def tell_progress(label: str, state: State, total_rounds: int, rows: Sequence[Row]) -> RunProgress:
    """Return where a run stands by its rows of metrics; a process at work trains once there is a round."""
    if state == "starting" and rows:
        state = "training" if len(rows) < total_rounds else "measuring"
    scores = (row["validation_score"] for row in reversed(rows) if row["validation_score"] is not None)
    seconds = fmean(row["seconds"] for row in rows[-RECENT_ROUNDS:]) if rows else None
    return RunProgress(label, state, len(rows), total_rounds, seconds, next(scores, None))
