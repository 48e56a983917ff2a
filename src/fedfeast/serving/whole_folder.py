"""Folders written whole or not at all."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedfeast.errors import InvalidInput


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give a hidden folder beside the path to fill, and put it in place in one step when all went well."""
    refuse_existing(path)
    path = path.resolve()
    partial = path.with_name(f".{path.name}.partial")
    make_folder(partial, path)
    handle = os.open(partial, os.O_RDONLY)
    try:
        _lock(handle, path)
        _clear(partial)  # of what a killed process left
        try:
            yield partial
            _sync(partial)
            refuse_existing(path)
            partial.replace(path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        _sync_names(path.parent)
    finally:
        os.close(handle)


def refuse_existing(path: Path) -> None:
    """Refuse a place that already holds something."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InvalidInput(f"--out {path} exists and is not an empty folder: give a new one.")


def make_folder(folder: Path, out: Path) -> None:
    """Make a folder and those above it, on the way to the place that a user named."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"--out {out} cannot be written ({error.strerror}): give another place.") from error


def _lock(handle: int, path: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidInput(f"another process is writing {path}: wait for it, or give another --out folder.") from None


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _sync(folder: Path) -> None:
    """Bring all files and names below a folder to the disk, so that a power cut leaves nothing half-written."""
    for place, _, files in os.walk(folder):
        for name in files:
            with (Path(place) / name).open("rb") as file:
                os.fsync(file.fileno())
        _sync_names(Path(place))


def _sync_names(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
