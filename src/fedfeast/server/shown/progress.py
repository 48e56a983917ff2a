"""What the run in a folder is doing, told from the folder."""

import time
from pathlib import Path
from typing import Literal

from fedfeast.runs.folder import RunFolder

State = Literal["waiting", "training", "stopped", "evaluating", "unevaluated", "finished", "gone", "ladder"]
LOCKS = Path("/proc/locks")
QUIET_SECONDS = 60  # where the system does not list its locks, a folder that changed since is at work

SENTENCES: dict[State, str] = {
    "waiting": "No round is finished yet.",
    "training": "Training; models are those of the best round so far.",
    "stopped": "Training has stopped before its last round.",
    "evaluating": "All rounds are finished; the test curve is being measured.",
    "unevaluated": "All rounds are finished, but the test curve was not measured.",
    "finished": "Finished and measured on the test set.",
    "gone": "The run's folder is gone.",
    "ladder": "A ladder of trained networks; the run that they come from is not here.",
}


def state_of(folder: RunFolder, finished_rounds: int, total_rounds: int, summarised_rounds: int | None) -> State:
    """Return what the run in a folder is doing."""
    if finished_rounds and summarised_rounds == finished_rounds == total_rounds:
        return "finished"
    at_work = is_at_work(folder.path)
    if not finished_rounds:
        return "training" if at_work else "waiting"
    if finished_rounds < total_rounds:
        return "training" if at_work else "stopped"
    return "evaluating" if at_work else "unevaluated"


def is_at_work(folder: Path) -> bool:
    """Return whether a process holds the folder's lock, without ever taking it."""
    lock = folder / ".lock"
    try:
        if LOCKS.is_file():
            place = f":{lock.stat().st_ino} "
            return any(place in line and "FLOCK" in line for line in LOCKS.read_text().splitlines())
        newest = max(file.stat().st_mtime for file in (lock, folder / "metrics.jsonl") if file.is_file())
    except (OSError, ValueError):
        return False
    return time.time() - newest < QUIET_SECONDS
