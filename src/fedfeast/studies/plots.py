"""A study's curves over MACs: the numbers for programs, and the chart that they make."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from fedfeast.data.tasks import ACCURACY, Metric
from fedfeast.presentation.chart import (
    DASHED,
    Axis,
    Chart,
    Colour,
    Point,
    Series,
    macs_axis,
    mark_of,
    metric_axis,
    published_series,
)


@dataclass(frozen=True)
class PlotPoint:
    """A measured operating point; a share in %, spread over several seeds."""

    macs: float
    value: float
    spread: float | None = None


@dataclass(frozen=True)
class Line:
    """One arm's measured points, and the paper's for the same."""

    label: str
    points: tuple[PlotPoint, ...]
    colour: int  # lines of one colour belong together
    dashed: bool = False
    published: tuple[tuple[float, float], ...] = ()  # MACs and value

    def starting_at(self, macs: float) -> "Line":
        """Return the line without points of fewer MACs."""
        return replace(self, points=tuple(point for point in self.points if point.macs >= macs))


@dataclass(frozen=True)
class Plot:
    """Lines on shared axes."""

    name: str  # of its files
    title: str
    caption: str
    lines: tuple[Line, ...]
    shared_from_macs: float  # points below lie outside the compared range
    anchors_macs: tuple[float, ...] = ()
    graded: bool = False  # colours follow an order, as in a sweep
    metric: Metric = ACCURACY

    @property
    def published(self) -> bool:
        """Whether the paper's points are in it."""
        return any(line.published for line in self.lines)

    def to_tree(self) -> dict[str, Any]:
        """Return the plot as plain values; accuracies by their name, values of other metrics as such."""
        key = "accuracy" if self.metric == ACCURACY else "value"
        lines = [
            {
                **asdict(line),
                "points": [{"macs": one.macs, key: one.value, "spread": one.spread} for one in line.points],
            }
            for line in self.lines
        ]
        return {**asdict(self), "lines": lines, "metric": self.metric.facts()}

    def chart(self) -> Chart:
        """Return the lines with their spread over seeds, the paper's points, the anchors, and what is not compared."""
        series = []
        for line in self.lines:
            colour = self._colour(line)
            points = tuple(Point(point.macs, point.value, point.spread or 0.0) for point in line.points)
            dash = DASHED if line.dashed else ()
            series.append(Series(line.label, points, colour, mark_of(line.colour), dash=dash))
            if line.published:
                series.append(published_series("", line.published, colour))
        if self.published:
            series.append(published_series("the paper's", (), "ink"))
        least = min(point.macs for line in self.lines for point in line.points)
        shade_to = 0.98 * self.shared_from_macs if least < 0.99 * self.shared_from_macs else None
        axes = (macs_axis(), metric_axis(self.metric))
        return Chart(*axes, tuple(series), anchors=self.anchors_macs, shade_to=shade_to, height=380)

    def _colour(self, line: Line) -> Colour:
        last = max(one.colour for one in self.lines)
        return f"grade:{line.colour / max(last, 1):.3f}" if self.graded else line.colour


@dataclass(frozen=True)
class ScatterPoint:
    """One arm: what it took, what came of it (a share in %), and how far chance alone may move that."""

    label: str
    cost: float
    value: float
    reach: float
    colour: int


@dataclass(frozen=True)
class Scatter:
    """What arms came to over what they cost."""

    name: str  # of its files
    title: str
    caption: str
    cost: str  # the cost's axis in words
    points: tuple[ScatterPoint, ...]
    metric: Metric = ACCURACY
    published: bool = False  # never: the paper has none of it

    def chart(self) -> Chart:
        """Return a mark for each arm, with bars as far as chance reaches, and its name in the legend."""
        series = tuple(
            Series(
                one.label,
                (Point(one.cost, one.value, name=one.label, interval=(one.value - one.reach, one.value + one.reach)),),
                one.colour,
                mark_of(one.colour),
                line=False,
            )
            for one in self.points
        )
        return Chart(Axis(self.cost, scale="log"), metric_axis(self.metric, "population score"), series, height=380)
