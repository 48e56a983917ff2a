"""Execute the notebooks, each in an empty folder, and keep their outputs in them: python docs/site/notebooks.py."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "notebooks"
MOST_SECONDS = 300  # of one cell


def executed(file: Path, folder: str) -> Any:
    """Return a notebook with the outputs that it has when it is executed in a folder."""
    notebook = nbformat.read(file, as_version=4)
    NotebookClient(notebook, timeout=MOST_SECONDS, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was, which changes every time
    notebook.metadata.pop("language_info", None)
    return notebook


def main() -> None:
    """Execute the named notebooks, or all of them."""
    for file in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(FOLDER.glob("*.ipynb")):
        with TemporaryDirectory() as folder:
            nbformat.write(executed(file, folder), file)
        print(f"executed {file.name}")


if __name__ == "__main__":
    main()
