"""A measurement as a dated pair of files: Markdown for people, and its numbers beside it as JSON."""

import json
from pathlib import Path
from typing import Any


def write_result(file: Path, text: str, result: Any) -> None:
    """Write a Markdown file and, beside it, the same numbers as JSON."""
    file.write_text(text)
    file.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
