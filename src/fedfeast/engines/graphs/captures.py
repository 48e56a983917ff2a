"""What becomes of work that no graph can hold."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb

import torch

from fedfeast.errors import InvalidInput

PACKAGES = (Path(torch.__file__).parent, Path(__file__).parents[2])  # whose lines say nothing about a network


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
        raise CannotCapture(f"{what} cannot be captured as a CUDA graph ({reason}{_place(error)})") from error


def _place(error: Exception) -> str:
    """Return the last line that is neither torch's nor the package's own, where there is one."""
    own = [
        frame
        for frame in extract_tb(error.__traceback__)
        if not any(Path(frame.filename).is_relative_to(package) for package in PACKAGES)
    ]
    return f", {Path(own[-1].filename).name} line {own[-1].lineno}" if own else ""
