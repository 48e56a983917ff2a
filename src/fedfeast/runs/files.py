"""Files written whole or not at all."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file beside the path, then put it in place in one step."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # so that the new name itself survives a power cut
    finally:
        os.close(folder)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    write_whole(path, lambda temporary: _fill(temporary, text))


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fill(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
