"""The one interface of all trackers, and what they are told of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker sees it when training begins or goes on."""

    name: str
    folder: Path  # where a tracker may keep files
    settings: Mapping[str, Any]  # the flat recipe
    finished_rounds: int


@dataclass(frozen=True)
class Told:
    """What a tracker knows a run by, and up to which round it was told of it."""

    identity: str
    rounds: int


class Tracker(Protocol):
    """Takes one run's settings, its rounds, and at the end its summary and report; may raise whatever it likes."""

    @property
    def name(self) -> str:
        """As --track calls it."""
        ...

    @property
    def where(self) -> str:
        """Its destination in words, without passwords."""
        ...

    def open(self, run: TrackedRun, told: Told | None) -> Told:
        """Begin, or go on with what was told before; return what the tracker still has of it."""
        ...

    def tell_round(self, round_number: int, values: Mapping[str, float]) -> None:
        """Take the numbers of one round."""
        ...

    def tell_end(self, summary: Mapping[str, float], report: Path) -> None:
        """Take the finished run's numbers, and its report as an artefact."""
        ...

    def close(self, finished: bool) -> None:
        """Nothing more will be told now; the run is finished, or was stopped and may go on."""
        ...


def numbers_of(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return a line of metrics as flat numbers: tables by their path, lists by their length, texts not at all."""
    numbers: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            numbers |= numbers_of(value, f"{prefix}{key}/")
        elif isinstance(value, list):
            numbers[f"{prefix}{key}"] = float(len(value))
        elif isinstance(value, int | float):
            numbers[f"{prefix}{key}"] = float(value)
    return numbers


def round_numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return what a tracker is told of a round besides its number."""
    sizes = {size["name"]: size["value"] for size in row.get("validation_sizes", [])}
    others = {key: value for key, value in row.items() if key not in ("round", "validation_sizes", "answer_seconds")}
    seconds = row.get("answer_seconds", {}).values()  # by client, of which there may be thousands
    return numbers_of({**others, "validation_sizes": sizes, **({"answer_seconds": median(seconds)} if seconds else {})})


def summary_numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the single numbers of a summary, without its tables and lists."""
    single = {key: value for key, value in summary.items() if isinstance(value, int | float)}
    return numbers_of(single, "summary/")
