"""A run's rounds as they are written, read again and again by those who show them."""

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


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
