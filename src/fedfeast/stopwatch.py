"""How long a call takes: the one timing loop, and what it waits for."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Repeats:
    """How often a call is timed: no more than ``most`` times and ``most_seconds``, but never less than ``least``."""

    most: float = inf
    least: int = 1
    most_seconds: float = inf
    warm_ups: int = 0  # calls before the clock runs

    def __post_init__(self) -> None:
        assert 1 <= self.least <= self.most
        assert min(self.most, self.most_seconds) < inf, "something must end it"


def time_calls(
    call: Callable[[], object], repeats: Repeats, wait_for_device: Callable[[], object] = lambda: None
) -> list[float]:
    """Return the milliseconds of every timed call, each from a device at rest until it has done its work."""
    for _ in range(repeats.warm_ups):
        call()
    milliseconds: list[float] = []
    while len(milliseconds) < repeats.least or (
        len(milliseconds) < repeats.most and sum(milliseconds) < 1e3 * repeats.most_seconds
    ):
        wait_for_device()
        started = time.perf_counter()
        call()
        wait_for_device()
        milliseconds.append(1e3 * (time.perf_counter() - started))
    return milliseconds


def waiting_for(kind: str) -> Callable[[], object]:
    """Return what waits until a device of this kind has done all it was given: a CPU always has."""
    if kind != "cuda":
        return lambda: None
    import torch

    return torch.cuda.synchronize
