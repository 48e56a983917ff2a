"""What differs between the recipes of runs that are shown together."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedfeast.recipes.recipe import differing_settings
from fedfeast.runs import Run
from fedfeast.runs.folder import NAMED_FILES
from fedfeast.whole_files import sha256_of

NOT_SET = "not set"


def recipe_differences(runs: Sequence[Run]) -> list[list[str]]:
    """Return a row for every setting that is not the same in all runs: its name, and what each run has."""
    differing = differing_settings([run.recipe for run in runs])
    rows = [[key, *(_shown(key, value) for value in values)] for key, values in differing.items()]
    return [row for row in rows if len(set(row[1:])) > 1]


def _shown(setting: str, value: Any) -> str:
    """Return a value as a reader sees it; a file by its content, since every run has a copy of its own."""
    if value is None:
        return NOT_SET
    if setting in NAMED_FILES and Path(str(value)).is_file():
        return f"a file, sha256 {sha256_of(Path(str(value)))[:12]}"
    return value if isinstance(value, str) else json.dumps(value)
