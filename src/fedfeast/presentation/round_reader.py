"""A run's rounds as they are written, read again and again by those who show them."""

import json
import math
from pathlib import Path
from typing import Any

from fedfeast.evaluation.fairness.participation import TAKING_PART
from fedfeast.runs.well_formed import misfit_round

Row = dict[str, Any]


class RoundReader:
    """Reads the lines that were added to metrics.jsonl since the last look."""

    def __init__(self, path: Path) -> None:
        self._path, self._read_bytes = path, 0
        self.damaged = 0  # lines that are none of a round
        self.rows: tuple[Row, ...] = ()

    def refresh(self) -> tuple[Row, ...]:
        """Return every finished round, least first; a line that is still being written is left for the next look."""
        size = self._path.stat().st_size if self._path.is_file() else 0
        # Cut back to a checkpoint, since the run was resumed; what was damaged may have been mended in place.
        if size < self._read_bytes or self.damaged:
            self._begin_again()
        if size > self._read_bytes:
            new = self._new_rows()
            if self.rows and (self.damaged or (new and new[0]["round"] != self.rows[-1]["round"] + 1)):
                self._begin_again()  # cut back and already grown again
                new = self._new_rows()
            self.rows += tuple(new)
        return self.rows

    def _begin_again(self) -> None:
        self._read_bytes, self.rows, self.damaged = 0, (), 0

    def _new_rows(self) -> list[Row]:
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            whole = file.read().rpartition(b"\n")[0]
        rows = []
        for line in whole.splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if misfit_round(row) is None:
                rows.append(_shown(row))
            else:
                self.damaged += 1
        self._read_bytes += len(whole) + 1 if whole else 0
        return rows


def _shown(row: Row) -> Row:
    """Return what a page shows of a round; numbers that JSON has no words for are left out."""
    score = row.get("validation_score")
    return {
        "round": int(row["round"]),
        "losses": {role: float(loss) for role, loss in row["losses"].items() if math.isfinite(loss)},
        "validation_score": score if score is not None and math.isfinite(score) else None,
        "sizes": [size for size in row.get("validation_sizes", []) if math.isfinite(size["value"])],
        "clients": len(row["clients"]),
        "taking_part": {key: row[key] for key in TAKING_PART if key in row},
        "payload_parameters": int(row["payload_parameters"]),
        "seconds": float(row["seconds"]),
    }
