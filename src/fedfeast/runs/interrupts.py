"""Ctrl-C and polite kills: turned into one exception, and held back while something must be finished."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

POLITE = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for a polite kill as for Ctrl-C while the block runs."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handling(interrupt):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C and polite kills while the block runs: it saves what the first one asked to save."""
    with _handling(signal.SIG_IGN):
        yield


def ignore_interrupts() -> None:
    """Ignore Ctrl-C and polite kills until the process ends, but for the blocks that are interruptible."""
    for number in POLITE:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    previous = {number: signal.signal(number, handler) for number in POLITE}
    try:
        yield
    finally:
        for number, former in previous.items():
            signal.signal(number, former)
