"""Which round's weights are kept and served: what is validated during training, and the figure that chooses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from fedfeast.errors import InvalidInput
from fedfeast.evaluation.curve import Curve, Serving, served_points
from fedfeast.federation import OperatingPoint

Rule = Literal["population-score", "anchors", "largest"]
Size = TypeVar("Size")


@dataclass(frozen=True)
class Selection:
    """A rule for choosing among rounds by what they come to on the validation examples."""

    rule: Rule = "population-score"
    serving: Serving = "largest"  # of the population score
    anchors: tuple[float, ...] = ()  # rows of the operating points, counted from 0, or MACs

    @property
    def words(self) -> str:
        """What the figure is, for people."""
        mean = "mean over clients, each with the"
        return {
            "population-score": f"{mean} {self.serving} network it affords",
            "anchors": f"mean of {len(self.anchors)} anchors",
            "largest": "largest network alone",
        }[self.rule]

    def points(self, points: Sequence[OperatingPoint], budgets_macs: np.ndarray) -> tuple[OperatingPoint, ...]:
        """Return the points that the figure needs, least price first."""
        if self.rule == "largest":
            return (points[-1],)
        if self.rule == "anchors":
            return tuple(points[place] for place in sorted(set(self._places(points))))
        if self.serving == "best":
            return tuple(point for point in points if point.price <= budgets_macs.max(initial=0))
        return served_points(points, budgets_macs)

    def score(self, curve: Curve, points: Sequence[OperatingPoint], budgets_macs: np.ndarray) -> float:
        """Return the figure of a validation curve over the points that it needs; all points of the method are given."""
        if self.rule == "population-score":
            return curve.population_score(budgets_macs, self.serving)
        values = {point.name: point.value for point in curve.points}
        places = self._places(points) if self.rule == "anchors" else [len(points) - 1]
        return float(np.mean([values[points[place].name] for place in places]))

    def _places(self, points: Sequence[OperatingPoint]) -> list[int]:
        """Return where the anchors are among the points: by row, or where the price is nearest to so many MACs."""
        prices = np.array([point.price for point in points], dtype=np.float64)
        places = []
        for anchor in self.anchors:
            if anchor < len(points) and anchor == int(anchor):
                places.append(int(anchor))
            elif anchor >= prices[0] / 2:  # no row is so large: networks have more MACs than caches have rows
                places.append(int(np.abs(prices - anchor).argmin()))
            else:
                raise InvalidInput(
                    f"evaluation.anchors has {anchor:g}, and there are {len(points)} networks, of {prices[0]:.0f} MACs "
                    f"or more: give rows from 0 to {len(points) - 1}, or MACs; or set evaluation.selection=largest."
                )
        return places


def spread(sizes: Sequence[Size], most: int) -> tuple[Size, ...]:
    """Return at most so many, evenly from the first to the last; of one alone the last."""
    places = np.linspace(len(sizes) - 1, 0, min(most, len(sizes))).round().astype(int)
    return tuple(sizes[place] for place in reversed(places.tolist()))
