"""What becomes of work that no graph can hold."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

import torch

from fedfeast.errors import InvalidInput

TORCH, PACKAGE = Path(torch.__file__).parent, Path(__file__).parents[2]  # whose lines say little about a network


class CannotCapture(Exception):
    """Work that waits for the device, or does something else that capturing forbids: what it is, and why."""


@contextmanager
def capturing(what: str) -> Iterator[None]:
    """Name the work and the reason where it cannot be captured."""
    try:
        yield
    except (torch.OutOfMemoryError, InvalidInput, CannotCapture):
        raise
    except Exception as error:  # whatever a user's code or a library may raise
        lines = str(error).strip().splitlines()
        reason = lines[0].rstrip(".") if lines else type(error).__name__
        raise cannot_capture(what, reason + _place(error)) from error


def cannot_capture(what: str, reason: str) -> CannotCapture:
    """Return that some work cannot be captured, and why."""
    return CannotCapture(f"{what} cannot be captured as a CUDA graph ({reason})")


def _place(error: Exception) -> str:
    """Return the last line of a user's own code, or without any the last one of this package."""
    frames = extract_tb(error.__traceback__)[1:]  # the first is the context's own
    for packages in ((TORCH, PACKAGE), (TORCH,)):
        own = [one for one in frames if not any(Path(one.filename).is_relative_to(package) for package in packages)]
        if own:
            return f", {Path(own[-1].filename).name} line {own[-1].lineno}"
    return ""
