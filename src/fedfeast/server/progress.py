"""A run's progress, told from its folder: its rounds as they are written, and what it is doing."""

import json
import time
from pathlib import Path
from typing import Any, Literal

from fedfeast.runs.folder import RunFolder

Row = dict[str, Any]
State = Literal["waiting", "training", "stopped", "evaluating", "unevaluated", "finished"]
LOCKS = Path("/proc/locks")
QUIET_SECONDS = 60  # where the system does not list its locks, a folder that changed since is at work

SENTENCES: dict[State, str] = {
    "waiting": "No round is finished yet.",
    "training": "Training; models are those of the best round so far.",
    "stopped": "Training has stopped before its last round.",
    "evaluating": "All rounds are finished; the test curve is being measured.",
    "unevaluated": "All rounds are finished, but the test curve was not measured.",
    "finished": "Finished and measured on the test set.",
}


class RoundReader:
    """Reads the lines that were added to metrics.jsonl since the last look."""

    def __init__(self, path: Path) -> None:
        self._path, self._read_bytes = path, 0
        self.rows: tuple[Row, ...] = ()

    def refresh(self) -> tuple[Row, ...]:
        """Return every finished round, least first; a line that is still being written is left for the next look."""
        size = self._path.stat().st_size if self._path.is_file() else 0
        if size < self._read_bytes:  # cut back to a checkpoint: the run was resumed
            self._read_bytes, self.rows = 0, ()
        if size > self._read_bytes:
            new = self._new_rows()
            if new and self.rows and new[0]["round"] != self.rows[-1]["round"] + 1:
                self._read_bytes, self.rows = 0, ()  # cut back and already grown again
                new = self._new_rows()
            self.rows += tuple(new)
        return self.rows

    def _new_rows(self) -> list[Row]:
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
        rows = []
        for line in whole.splitlines():
            try:
                rows.append(_shown(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # a damaged line; the run itself will complain of it
        self._read_bytes += len(whole) + 1 if whole else 0
        return rows


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


def _shown(row: Row) -> Row:
    """Return what a page shows of a round."""
    return {
        "round": int(row["round"]),
        "losses": {str(role): float(loss) for role, loss in row["losses"].items()},
        "validation_score": row.get("validation_score"),
        "clients": len(row["clients"]),
        "payload_parameters": int(row["payload_parameters"]),
        "seconds": float(row["seconds"]),
    }
