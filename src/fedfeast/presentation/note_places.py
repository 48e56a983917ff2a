"""Where the words beside points stand in a picture, so that none covers another one or a mark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from fedfeast.presentation.chart import Axis, Chart, Note

LETTER, LINE = 7.0, 13.0  # pixels: about as wide and as high as a small letter
GAP = 7.0  # between a point and its word
MARK = 5.0  # half of a mark's width
Side = Literal["left", "center", "right"]
Place = tuple[float, float]  # pixels from the left and from the top


@dataclass(frozen=True)
class PlacedNote:
    """A note and where its word stands: how many pixels right of and below its point, and which end is there."""

    note: Note
    right: float
    below: float
    side: Side


@dataclass(frozen=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "_Box") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def is_crossed(self, one: Place, other: Place) -> bool:
        """Return whether a line between two places passes through, looked at in small steps."""
        steps = max(2, int(math.dist(one, other) / 4))
        between = ([a + (b - a) * step / steps for a, b in zip(one, other, strict=True)] for step in range(steps + 1))
        return any(self.left < x < self.right and self.top < y < self.bottom for x, y in between)


def place_notes(chart: Chart, width: float, height: float) -> list[PlacedNote]:
    """Return the notes that a plot of so many pixels has room for: the outermost first, off lines if possible."""
    points = [[_place(chart, point.x, point.y, width, height) for point in one.points] for one in chart.series]
    marks = [_Box(x - MARK, y - MARK, x + MARK, y + MARK) for of_series in points for x, y in of_series]
    lines = [
        pair for of_series, one in zip(points, chart.series, strict=True) if one.line for pair in pairwise(of_series)
    ]
    placed: list[PlacedNote] = []
    taken: list[_Box] = []
    for note in _outermost_first(chart.notes):
        at = _place(chart, note.x, note.y, width, height)
        free = []
        for order, one in enumerate(_candidates(note)):
            box = _box_of(one, at)
            inside = box.left >= 0 and box.right <= width and box.top >= 0 and box.bottom <= height
            if inside and not any(map(box.meets, [*marks, *taken])):
                free.append((sum(box.is_crossed(*line) for line in lines), order, one, box))
        if free:
            *_, chosen, box = min(free, key=lambda one: one[:2])
            placed.append(chosen)
            taken.append(box)
    return placed


def _candidates(note: Note) -> list[PlacedNote]:
    beside, under = GAP + LINE / 2, GAP + LINE
    sides: tuple[tuple[Side, float], ...] = (("left", GAP), ("right", -GAP), ("center", 0.0))
    diagonal = [PlacedNote(note, right, below, side) for below in (beside, -beside) for side, right in sides if right]
    level = [PlacedNote(note, right + math.copysign(MARK, right), 0.0, side) for side, right in sides if right]
    upright = [PlacedNote(note, 0.0, below, "center") for below in (under, -under)]
    return [*diagonal, *level, *upright]


def _box_of(placed: PlacedNote, at: Place) -> _Box:
    wide = LETTER * len(placed.note.text)
    left = at[0] + placed.right - {"left": 0.0, "center": wide / 2, "right": wide}[placed.side]
    middle = at[1] + placed.below
    return _Box(left, middle - LINE / 2, left + wide, middle + LINE / 2)


def _place(chart: Chart, x: float, y: float, width: float, height: float) -> Place:
    return width * _share(chart.x, chart.x_limits, x), height * (1 - _share(chart.y, chart.y_limits, y))


def _share(axis: Axis, limits: tuple[float, float], value: float) -> float:
    at = math.log if axis.scale == "log" else float
    low, high = map(at, limits)
    return (at(value) - low) / (high - low)


def _outermost_first(notes: Sequence[Note]) -> list[Note]:
    """Return the first and the last note before the others, which can be left out sooner."""
    return [*notes[:1], *notes[-1:], *notes[1:-1]] if len(notes) > 1 else list(notes)
