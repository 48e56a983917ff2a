"""Files and folders written whole or not at all."""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
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
def whole_folder(path: Path, gives_way: Callable[[Path], bool] | None = None) -> Iterator[Path]:
    """Give a hidden folder beside the path to fill, and put it in place in one step when all went well.

    A folder that is there and not empty must be one that gives way to the new one.
    """
    _refuse_existing(path, gives_way)
    path = path.resolve()
    with full_disk_is_said(path.parent, "try again; nothing was written"), _filled_folder(path, gives_way) as partial:
        yield partial


@contextmanager
def _filled_folder(path: Path, gives_way: Callable[[Path], bool] | None) -> Iterator[Path]:
    partial, lock, former = (path.with_name(f".{path.name}.{ending}") for ending in ("partial", "lock", "former"))
    make_folder(path.parent, path)
    with held_alone(lock, f"another process is writing {path}: wait for it, or give another --out folder."):
        try:
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            if former.exists() and not path.exists():
                former.replace(path)  # likewise
            make_folder(partial, path)
            yield partial
            _sync(partial)
            _refuse_existing(path, gives_way)
            if path.exists() and any(path.iterdir()):
                shutil.rmtree(former, ignore_errors=True)
                path.replace(former)  # a folder that is not empty cannot be replaced in one step
            partial.replace(path)
            _sync_names(path.parent)
            shutil.rmtree(former, ignore_errors=True)
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


def refuse_unknown_ending(out: Path, endings: Sequence[str] = ()) -> None:
    """Refuse a folder's name that ends as files of another kind do, such as .tflite; version numbers may end it."""
    if re.fullmatch(r"\.(?!v?\d)\w+", out.suffix) is None or out.suffix in endings:
        return
    files = f"end a file in {', '.join(endings[:-1])} or {endings[-1]}, or " if endings else ""
    raise InvalidInput(f"--out {out} ends in {out.suffix}, which is not written: {files}give a folder without it.")


def _refuse_existing(path: Path, gives_way: Callable[[Path], bool] | None) -> None:
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if gives_way is None:
        raise InvalidInput(
            f"--out {path} exists and is not an empty folder: give a new one, or add --force to replace what was "
            "written there."
        )
    if not gives_way(path):
        raise InvalidInput(f"--out {path} holds something else than --force may replace: give a new folder.")


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
