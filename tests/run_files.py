"""Changes to a trained run's files."""

import json
from pathlib import Path


def forget_sizes(folder: Path) -> None:
    """Let a run have validated no size by itself while it trained."""
    metrics = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    kept = [{key: value for key, value in row.items() if key != "validation_sizes"} for row in rows]
    metrics.write_text("".join(f"{json.dumps(row)}\n" for row in kept))
