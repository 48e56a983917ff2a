"""Files and folders written whole or not at all."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedfeast.errors import InvalidInput
from fedfeast.locks import held_alone

DISK_IS_FULL = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})


class FullDisk(InvalidInput):
    """There is no room for what was to be written; what was there before is as it was."""


@contextmanager
def full_disk_is_said(folder: Path, remedy: str) -> Iterator[None]:
    """Say in one sentence that a folder's disk is full, and what to do when it no longer is."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_IS_FULL:
            raise
        raise FullDisk(f"the disk of {folder} is full ({error.strerror}): free some of it, then {remedy}.") from error


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
    _sync_names(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole."""
    write_whole(path, lambda temporary: _fill(temporary, content))


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    write_bytes(path, text.encode())


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give a hidden folder beside the path to fill, and put it in place in one step when all went well."""
    _refuse_existing(path)
    path = path.resolve()
    with full_disk_is_said(path.parent, "try again; nothing was written"), _filled_folder(path) as partial:
        yield partial


@contextmanager
def _filled_folder(path: Path) -> Iterator[Path]:
    partial, lock = (path.with_name(f".{path.name}.{ending}") for ending in ("partial", "lock"))
    make_folder(path.parent, path)
    with held_alone(lock, f"another process is writing {path}: wait for it, or give another --out folder."):
        try:
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            make_folder(partial, path)
            yield partial
            _sync(partial)
            _refuse_existing(path)
            partial.replace(path)
            _sync_names(path.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def make_folder(folder: Path, out: Path) -> None:
    """Make a folder and those above it, on the way to the place that a user named."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in DISK_IS_FULL:
            raise
        raise InvalidInput(f"--out {out} cannot be written ({error.strerror}): give another place.") from error


def _refuse_existing(path: Path) -> None:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InvalidInput(f"--out {path} exists and is not an empty folder: give a new one.")


def _fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _sync(folder: Path) -> None:
    """Bring all files and names below a folder to the disk, so that a power cut leaves nothing half-written."""
    for place, _, files in os.walk(folder):
        for name in files:
            with (Path(place) / name).open("rb") as file:
                os.fsync(file.fileno())
        _sync_names(Path(place))


def _sync_names(folder: Path) -> None:
    """Let new names in a folder survive a power cut, where the system lets folders be opened."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
