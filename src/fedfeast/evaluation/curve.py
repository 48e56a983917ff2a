"""The accuracy-MACs curve of a trained federation and what its clients get from it."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedfeast.data import Examples, Normalisation
from fedfeast.evaluation.recalibration import in_batches, recalibrate
from fedfeast.federation import Deployed, Method, OperatingPoint
from fedfeast.networks.normalisation import ByStatistics, Statistics

EVALUATION_BATCH = 500


@dataclass(frozen=True)
class CurvePoint:
    """One measured operating point."""

    name: str
    macs: int
    parameters: int
    accuracy: float  # share of examples, 0 to 1


@dataclass(frozen=True)
class Curve:
    """Measured operating points, least MACs first."""

    points: tuple[CurvePoint, ...]

    def serve(self, budget_macs: float) -> CurvePoint | None:
        """Return the largest point the budget affords, or None."""
        affordable = bisect_right(self.points, budget_macs, key=lambda point: point.macs)
        return self.points[affordable - 1] if affordable else None

    def client_accuracies(self, budgets_macs: np.ndarray) -> np.ndarray:
        """Return what each client gets under largest-affordable serving; a client nothing fits gets 0."""
        # Choice: an unserved client counts as 0, so that a method cannot win by leaving clients out.
        accuracies = np.array([0.0] + [point.accuracy for point in self.points])
        macs = np.array([point.macs for point in self.points])
        return accuracies[np.searchsorted(macs, budgets_macs, side="right")]

    def population_score(self, budgets_macs: np.ndarray) -> float:
        """Return the mean accuracy over clients under largest-affordable serving."""
        return float(self.client_accuracies(budgets_macs).mean())

    def served_share(self, budgets_macs: np.ndarray) -> float:
        """Return the share of clients that any point fits."""
        return float(np.mean(budgets_macs >= self.points[0].macs))


@dataclass(frozen=True)
class ClientWins:
    """On how many clients one curve serves better than another."""

    wins: int
    ties: int
    losses: int


def count_client_wins(curve: Curve, other: Curve, budgets_macs: np.ndarray) -> ClientWins:
    """Compare two curves client by client under largest-affordable serving."""
    ours, theirs = curve.client_accuracies(budgets_macs), other.client_accuracies(budgets_macs)
    return ClientWins(int((ours > theirs).sum()), int((ours == theirs).sum()), int((ours < theirs).sum()))


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Measures operating points: recalibrates on one set of server-held examples, tests on another."""

    calibration: Examples
    test: Examples
    normalisation: Normalisation | None

    def accuracy(self, deployed: Deployed) -> float:
        """Return the share of test examples that the recalibrated network gets right."""
        statistics = recalibrate(deployed, self.calibration, self.normalisation)
        return measure_accuracy(deployed, statistics, self.test, self.normalisation)

    def curve(
        self,
        method: Method,
        flat: torch.Tensor,
        points: Sequence[OperatingPoint],
        on_point: Callable[[OperatingPoint], None] = lambda point: None,
    ) -> Curve:
        """Measure every given operating point of the global vector; on_point is told before each."""
        measured = []
        for point in points:
            on_point(point)
            deployed = method.deploy(flat, point)
            measured.append(CurvePoint(point.name, deployed.macs, deployed.parameters, self.accuracy(deployed)))
        return Curve(tuple(measured))


@torch.no_grad()
def measure_accuracy(
    deployed: Deployed, statistics: Statistics, test: Examples, normalisation: Normalisation | None
) -> float:
    """Return the share of examples classified right under the given statistics."""
    correct = torch.zeros((), dtype=torch.int64, device=test.labels.device)
    by_statistics = ByStatistics(statistics)
    for images, labels in in_batches(test, normalisation, EVALUATION_BATCH, deployed.flat.dtype):
        correct += (deployed(images, by_statistics).argmax(dim=1) == labels).sum()
    return float(correct) / len(test)


def served_points(points: Sequence[OperatingPoint], budgets_macs: np.ndarray) -> tuple[OperatingPoint, ...]:
    """Return the points that largest-affordable serving hands to at least one client."""
    positions = np.searchsorted([point.macs for point in points], budgets_macs, side="right")
    return tuple(points[position - 1] for position in np.unique(positions) if position > 0)
