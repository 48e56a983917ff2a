"""The notebooks as their readers execute them, each in an empty folder."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from notebooks import FOLDER, executed

NAMES = ("first-training", "comparing-methods", "own-network")


def outputs(notebook: Any) -> list[list[tuple[str, ...]]]:
    """Return which kinds of outputs every cell has; pieces of printed text are one."""
    return [
        list(dict.fromkeys((one.output_type, *sorted(one.get("data", {}))) for one in cell.get("outputs", [])))
        for cell in notebook.cells
    ]


def test_all_notebooks_are_known_here() -> None:
    assert {file.stem for file in FOLDER.glob("*.ipynb")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_and_shows_what_is_kept_in_it(name: str, tmp_path: Path) -> None:
    file = FOLDER / f"{name}.ipynb"
    kept, new = nbformat.read(file, as_version=4), executed(file, str(tmp_path))
    assert outputs(new) == outputs(kept), "make notebooks executes them anew"
    training = next(cell for cell in new.cells if "fedfeast.train(" in cell.source)
    assert "<progress" in training.outputs[0]["data"]["text/html"], "the live line"
    assert "rounds in" in training.outputs[0]["data"]["text/plain"]
    assert str(tmp_path) not in nbformat.writes(new), "outputs name no place of this machine"
