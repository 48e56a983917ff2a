"""Locks between processes: held by one at a time, and gone with it however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedfeast.errors import InvalidInput


@contextmanager
def held_alone(path: Path, sentence: str, leave_file: bool = False) -> Iterator[None]:
    """Hold a lock's file while the block runs; where another process holds it, that is said in a sentence.

    The file goes with the block unless it is to be left for those who look whether it is held.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise InvalidInput(sentence) from None
    with _released(lock, leave_file):
        yield


@contextmanager
def held_in_turn(path: Path) -> Iterator[None]:
    """Hold a lock's file while the block runs, after all who had it before."""
    lock = FileLock(path)
    lock.acquire()
    with _released(lock, leave_file=False):
        yield


@contextmanager
def _released(lock: FileLock, leave_file: bool) -> Iterator[None]:
    try:
        yield
    finally:
        if not leave_file:
            # While it is held: whoever waits for it notices, and makes a new one.
            with suppress(PermissionError):  # Windows keeps a file that is open
                Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
