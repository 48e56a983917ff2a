"""Accuracy-MACs curves as values; the app draws them."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class PlotPoint:
    """A measured operating point; accuracy in %, spread over several seeds."""

    macs: float
    accuracy: float
    spread: float | None = None


@dataclass(frozen=True)
class Line:
    """One arm's measured points, and the paper's for the same."""

    label: str
    points: tuple[PlotPoint, ...]
    colour: int  # lines of one colour belong together
    dashed: bool = False
    published: tuple[tuple[float, float], ...] = ()  # MACs and accuracy in %

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
