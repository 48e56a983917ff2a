"""What a study's runs came to, by arm and seed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

from fedfeast.data.tasks import Metric
from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.evaluation.published import ANCHORS_MACS
from fedfeast.planning.outline import outline
from fedfeast.recipes import Recipe
from fedfeast.runs import Run
from fedfeast.studies.alone import ClientAlone
from fedfeast.studies.arms import Arm, look_of
from fedfeast.studies.plots import Line, Plot, PlotPoint
from fedfeast.studies.tables import Cell, Column, Estimate
from fedfeast.units import format_macs

NEARBY = 0.05  # relative; a cached variant this close to the paper's anchor carries its name
NUM_ANCHORS = 5

Key = TypeVar("Key")


@dataclass(frozen=True)
class Anchor:
    """A budget at which curves are read, and what a table calls it."""

    label: str
    budget_macs: float
    of_the_paper: bool = False


@dataclass(frozen=True, eq=False)
class Outcome:
    """One arm's run with one seed; a study that trains nothing has only recipes."""

    arm: Arm
    seed: int
    recipe: Recipe
    curve: Curve = field(default_factory=lambda: Curve(()))
    budgets_macs: np.ndarray = field(default_factory=lambda: np.empty(0))
    run: Run | None = None

    @property
    def score(self) -> float:
        """The population score, in % where it is a share."""
        return self.curve.metric.shown(self.curve.population_score(self.budgets_macs))

    @property
    def best_score(self) -> float:
        """The population score where each client has the best point that it affords, in % where it is a share."""
        return self.curve.metric.shown(self.curve.population_score(self.budgets_macs, "best"))

    @property
    def smallest(self) -> float:
        """The value of the smallest point."""
        return self._shown(self.curve.points[0])

    @property
    def largest(self) -> float:
        """The value of the largest point."""
        return self._shown(self.curve.points[-1])

    @property
    def best(self) -> float:
        """The value of the best point."""
        return self._shown(self.curve.best)

    def at(self, budget_macs: float) -> float | None:
        """Return the value of the largest point that a budget affords, if any."""
        point = self.curve.serve(budget_macs)
        return None if point is None else self._shown(point)

    def lead(self, value: float, *others: float) -> float:
        """Return by how much a value is better than the best of others."""
        merit = self.curve.metric.merit
        return merit(value) - max(map(merit, others))

    def _shown(self, point: CurvePoint) -> float:
        return self.curve.metric.shown(point.value)


Measure = Callable[..., float | None]  # of one seed's outcomes, one or several


@dataclass(frozen=True, eq=False)
class Results:
    """All outcomes of a study, and the recipe from which its arms depart."""

    base: Recipe
    outcomes: tuple[Outcome, ...]
    alone: Mapping[int, tuple[ClientAlone, ...]] = field(default_factory=dict)  # by seed, where clients trained alone

    @property
    def data(self) -> str:
        """The data set's name, under which published numbers are found."""
        return self.base.data.name

    @property
    def metric(self) -> Metric:
        """What the runs are judged by."""
        return self.outcomes[0].curve.metric

    @property
    def measured_in(self) -> str:
        """What the numbers of a table are."""
        return f"test {self.metric.title}{' in %' if self.metric.is_share else ''}"

    @property
    def percent(self) -> str:
        """What stands behind the heading of a column of values."""
        return " (%)" if self.metric.is_share else ""

    @cached_property
    def arms(self) -> dict[str, Arm]:
        """The arms by name, in the study's order."""
        return {outcome.arm.name: outcome.arm for outcome in self.outcomes}

    @property
    def num_clients(self) -> int:
        """The number of clients."""
        return len(self.outcomes[0].budgets_macs)

    def of(self, arm: str) -> list[Outcome]:
        """Return an arm's outcomes by seed."""
        return [outcome for outcome in self.outcomes if outcome.arm.name == arm]

    def cell(self, measure: Measure, *arms: str, paper: float | None = None) -> Cell:
        """Measure the outcomes of the given arms together, seed by seed, beside a published number."""
        return Cell(Estimate.of([measure(*of_seed) for of_seed in zip(*map(self.of, arms), strict=True)]), paper)

    @cached_property
    def cached_macs(self) -> list[int]:
        """The prices of the cached variants; the first is where all methods begin to be compared."""
        return [variant.price for variant in outline(self.base).cache]

    @cached_property
    def anchors(self) -> tuple[Anchor, ...]:
        """The paper's five anchors where the cache has them, else five of its variants from end to end."""
        return anchors_of(self.cached_macs)

    def anchor_columns(self) -> tuple[Column, ...]:
        """Return a column for every anchor."""
        return tuple(Column(anchor.label) for anchor in self.anchors)

    def at_anchors(self, arm: str, published: Sequence[float] | None = None) -> tuple[Cell, ...]:
        """Return an arm's values at the anchors beside the paper's."""
        papers = dict(self._at_the_papers_anchors(published))
        budgets = [anchor.budget_macs for anchor in self.anchors]
        return tuple(self.cell(_value_at(budget), arm, paper=papers.get(budget)) for budget in budgets)

    def change(self, outcome: Outcome) -> float | None:
        """Return by how many points the largest model is better than the smallest in the compared range."""
        first = self.first_compared(outcome)
        return None if first is None else outcome.lead(outcome.largest, first)

    def first_compared(self, outcome: Outcome) -> float | None:
        """Return the value of an outcome's smallest point within the cache's range."""
        within = [point for point in outcome.curve.points if point.price >= self.cached_macs[0]]
        return self.metric.shown(within[0].value) if within else None

    def line(
        self, arm: str, colour: int | None = None, dashed: bool = False, published: Sequence[float] | None = None
    ) -> Line:
        """Return an arm's curve, a mean over seeds, with the paper's values at the anchors."""
        curves = [outcome.curve for outcome in self.of(arm)]
        macs = [point.drawn_at for point in curves[0].points]
        shown = self.metric.shown
        values = [  # (seeds, points); seeds share their points, unless sizes depend on trained weights
            np.interp(macs, [point.drawn_at for point in curve.points], [shown(point.value) for point in curve.points])
            for curve in curves
        ]
        points = []
        for cost, *of_seeds in zip(macs, *values, strict=True):
            estimate = Estimate.of([float(value) for value in of_seeds])
            assert estimate is not None
            points.append(PlotPoint(cost, estimate.mean, estimate.spread))
        methods = {name: str(one.settings["method.name"]) for name, one in self.arms.items()}
        own = look_of(methods[arm], methods.values())
        papers = tuple(self._at_the_papers_anchors(published))
        return Line(self.arms[arm].label, tuple(points), own if colour is None else colour, dashed, papers)

    def plot(self, name: str, title: str, caption: str, lines: Iterable[Line], graded: bool = False) -> Plot:
        """Return lines on axes that show the compared range and the anchors."""
        anchors = tuple(anchor.budget_macs for anchor in self.anchors)
        shown = (name, f"{title}, {self.data}", caption, tuple(lines))
        return Plot(*shown, self.cached_macs[0], anchors, graded, self.metric)

    def _at_the_papers_anchors(self, published: Sequence[float] | None) -> list[tuple[float, float]]:
        """Return MACs and published values; none where the cache has other anchors than the paper."""
        if published is None or not all(anchor.of_the_paper for anchor in self.anchors):
            return []
        return [(anchor.budget_macs, value) for anchor, value in zip(self.anchors, published, strict=True)]


def anchors_of(prices: Sequence[int]) -> tuple[Anchor, ...]:
    """Return the paper's five anchors where a cache of these prices has them, else five of its variants."""
    macs = np.array(prices, dtype=np.float64)
    nearest = [float(macs[np.abs(macs - anchor).argmin()]) for anchor in ANCHORS_MACS]
    pairs = list(zip(nearest, ANCHORS_MACS, strict=True))
    if all(abs(one - anchor) <= NEARBY * anchor for one, anchor in pairs):
        # The paper's names are rounded; a baseline may use what either the name or the variant allows.
        return tuple(Anchor(format_macs(anchor), max(one, anchor), True) for one, anchor in pairs)
    chosen = np.unique(np.linspace(0, len(macs) - 1, NUM_ANCHORS).round().astype(int))
    return tuple(Anchor(format_macs(macs[position]), float(macs[position])) for position in chosen)


def extreme(choose: Callable[[Iterable[float]], float], measure: Measure) -> Measure:
    """Return the measure of several outcomes that chooses, e.g. the least, from what each of them comes to."""

    def chosen(*outcomes: Outcome) -> float | None:
        values = [value for value in map(measure, outcomes) if value is not None]
        return choose(values) if len(values) == len(outcomes) else None

    return chosen


def published_of(by_data: Mapping[str, Mapping[Key, float]], data: str, key: Key) -> float | None:
    """Return a published number by data set and key, if the paper has it."""
    return by_data.get(data, {}).get(key)


def capital(words: str) -> str:
    """Return words that begin with a capital; the others keep theirs."""
    return words[:1].upper() + words[1:]


def _value_at(budget_macs: float) -> Measure:
    return lambda outcome: outcome.at(budget_macs)
