"""A chart described once: pictures.py draws it into a file, assets/charts.js on a page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from fedfeast.data.tasks import Metric  # charts are described without torch

Spec = dict[str, Any]  # what charts.js takes, in its own words
Colour = int | str  # a series' number, a name of the stylesheet ("grey"), or "grade:0.5", half-way along an order
Format = Literal["macs", "percent", "count", "number", "milliseconds"]
FilledMark = Literal[
    "dot",
    "square",
    "triangle",
    "wedge",
    "plus",
    "star",
    "cross",
    "pentagon",
    "leftward",
    "rightward",
    "hourglass",
    "bow",
    "bar",
    "beam",
    "chevron",
    "hexagon",
    "arch",
]
Mark = Literal[FilledMark, "diamond", "ring", "none"]

# 17 marks beside ten colours: the first 17 numbers differ in their marks, the first 170 in one or the other. Numbers of
# one colour, ten apart, have marks that are not mistaken for each other.
FILLED_MARKS: tuple[Mark, ...] = get_args(FilledMark)
DASHED, DOTTED = (7.0, 4.0), (2.0, 4.0)  # pixels drawn and pixels left out
HEIGHT = 330  # pixels
ROOM = 1.12  # beside the outermost values of a logarithmic axis
LEAST_PERCENT = 3  # of a share's axis, so that noise does not look like a trend


@dataclass(frozen=True)
class Axis:
    """What an axis measures, how its numbers are written, and where it begins and ends."""

    label: str
    format: Format = "number"
    scale: Literal["linear", "log"] = "linear"
    unit: str = ""
    least: float | None = None  # without it, what the values need
    greatest: float | None = None
    span: float = 0.0  # at least this much is shown
    floor: float = -math.inf
    ceiling: float = math.inf
    whole: bool = False  # numbers between whole ones mean nothing

    def limits(self, values: Sequence[float]) -> tuple[float, float]:
        """Return where the axis begins and ends for these values."""
        values = values or ((1.0, 10.0) if self.scale == "log" else (0.0, 1.0))
        low = min(values) if self.least is None else self.least
        high = max(values) if self.greatest is None else self.greatest
        if self.scale == "log":
            low, high = low / (ROOM if self.least is None else 1), high * (ROOM if self.greatest is None else 1)
            return (low, high) if low < high else (low / 2, high * 2)
        slack = max((self.span - (high - low)) / 2, 0.06 * (high - low))
        if self.greatest is None:
            high = min(high + slack, max(self.ceiling, high))
        if self.least is None:
            low = max(min(low - slack, high - self.span), self.floor)
        return (low, high) if low < high else (low, low + 1)

    def spec(self, values: Sequence[float]) -> Spec:
        """Return the axis for charts.js, its limits worked out."""
        low, high = self.limits(values)
        content = {"label": self.label, "scale": self.scale, "format": self.format, "min": low, "max": high}
        return content | _given({"unit": self.unit, "whole": self.whole})


@dataclass(frozen=True)
class Point:
    """A measured value, its spread over several seeds, its name, and within which the true value lies."""

    x: float
    y: float
    spread: float = 0.0
    name: str = ""
    interval: tuple[float, float] | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest value that is drawn."""
        return self.interval or (self.y - self.spread, self.y + self.spread)

    def spec(self) -> list[Any]:
        """Return the point for charts.js."""
        if self.interval:
            return [self.x, self.y, self.spread, self.name, list(self.interval)]
        if self.name:
            return [self.x, self.y, self.spread, self.name]
        return [self.x, self.y, self.spread] if self.spread else [self.x, self.y]


@dataclass(frozen=True)
class Series:
    """Points that belong together; without a label the legend leaves them out."""

    label: str
    points: tuple[Point, ...]
    colour: Colour = 0
    mark: Mark = "dot"
    line: bool = True
    dash: tuple[float, ...] = ()
    thin: bool = False

    @property
    def banded(self) -> bool:
        """Whether every point has a spread to show."""
        return bool(self.points) and all(point.spread for point in self.points)

    def spec(self) -> Spec:
        """Return the series for charts.js."""
        content: Spec = {"label": self.label, "colour": self.colour, "points": [point.spec() for point in self.points]}
        content |= {} if self.mark == "dot" else {"mark": self.mark}
        content |= {} if self.line else {"line": False}
        return content | _given({"dash": " ".join(f"{length:g}" for length in self.dash), "thin": self.thin})


@dataclass(frozen=True)
class Bar:
    """How many there are in a range; a muted one does not count."""

    start: float
    end: float
    value: float
    muted: bool = False

    def spec(self) -> Spec:
        """Return the bar for charts.js."""
        return {"from": self.start, "to": self.end, "value": self.value, "muted": self.muted}


@dataclass(frozen=True)
class Note:
    """A word beside a point."""

    x: float
    y: float
    text: str

    def spec(self) -> Spec:
        """Return the note for charts.js."""
        return {"x": self.x, "y": self.y, "text": self.text}


@dataclass(frozen=True)
class Chart:
    """Series or bars over two axes."""

    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    bars: tuple[Bar, ...] = ()
    bar_name: str = ""  # of what bars count
    anchors: tuple[float, ...] = ()  # dotted upright lines
    shade_to: float | None = None  # what lies before does not count
    notes: tuple[Note, ...] = ()
    height: int = HEIGHT

    @property
    def x_limits(self) -> tuple[float, float]:
        """Where the horizontal axis begins and ends."""
        return self.x.limits(self._across())

    @property
    def y_limits(self) -> tuple[float, float]:
        """Where the upright axis begins and ends."""
        return self.y.limits(self._upright())

    def spec(self) -> Spec:
        """Return the chart for charts.js."""
        parts = {
            "series": [series.spec() for series in self.series],
            "bars": [bar.spec() for bar in self.bars],
            "barName": self.bar_name,
            "anchors": list(self.anchors),
            "shade": [] if self.shade_to is None else [{"to": self.shade_to}],
            "notes": [note.spec() for note in self.notes],
            "height": 0 if self.height == HEIGHT else self.height,  # by default what the page's width allows
        }
        axes = {"x": self.x.spec(self._across()), "y": self.y.spec(self._upright())}
        return {"kind": "xy", **axes, **_given(parts)}

    def _across(self) -> list[float]:
        ends = [end for bar in self.bars for end in (bar.start, bar.end)]
        return [*(point.x for series in self.series for point in series.points), *ends]

    def _upright(self) -> list[float]:
        points = [point for series in self.series for point in series.points]
        bars = [0.0, *(bar.value for bar in self.bars)] if self.bars else []
        return [*(end for point in points for end in point.ends), *bars]


@dataclass(frozen=True)
class HeatMap:
    """Shares in percent by row and column; None where there is nothing."""

    label: str  # of the columns and the cells
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]

    @property
    def height(self) -> int:
        """The height in pixels."""
        return 50 + 40 * len(self.rows)

    def spec(self) -> Spec:
        """Return the heat map for charts.js."""
        values = [list(row) for row in self.values]
        content = {"rows": list(self.rows), "columns": list(self.columns), "values": values}
        return {"kind": "grid", **content, "x": {"label": self.label}}


AnyChart = Chart | HeatMap
ACCURACY = Axis("test accuracy (%)", "percent", span=LEAST_PERCENT, ceiling=100.5)
COUNTED_CLIENTS = Axis("clients by budget", "count", floor=0, whole=True)


def metric_axis(metric: "Metric", what: str = "") -> Axis:
    """Return the axis of a metric on the test set, or of what else it says; shares are in percent."""
    facts = [*(["%"] if metric.is_share else []), *([] if metric.more_is_better else ["less is better"])]
    label = (what or f"test {metric.title}") + (f" ({', '.join(facts)})" if facts else "")
    return Axis(label, "percent", span=LEAST_PERCENT, ceiling=100.5) if metric.is_share else Axis(label)


def macs_axis(
    label: str = "inference cost (MACs per example, log scale)",
    least: float | None = None,
    greatest: float | None = None,
) -> Axis:
    """Return a logarithmic axis of MACs."""
    return Axis(label, "macs", "log", "MACs", least, greatest)


def mark_of(number: int) -> Mark:
    """Return the mark of a series' number, so that series are told apart without their colours, too."""
    return FILLED_MARKS[number % len(FILLED_MARKS)]


def published_series(label: str, points: Sequence[tuple[float, float]], colour: Colour) -> Series:
    """Return the paper's points as open diamonds; a label without points is for the legend."""
    shown = tuple(Point(x, y, name="the paper's") for x, y in points)
    return Series(label, shown, colour, "diamond", line=False)


def _given(content: Spec) -> Spec:
    """Leave out what is empty, zero or false, as charts.js takes for granted."""
    return {key: value for key, value in content.items() if value}
