"""Which of a run's networks a device gets: the largest within limits of cost, size or measured latency, or the best."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedfeast.errors import InvalidInput
from fedfeast.federation import OperatingPoint

MeasureLatency = Callable[[OperatingPoint], float]  # milliseconds of one inference on this device

# Choice: no network computes a MAC in less than half the time of a larger one; what this rules out is not measured.
GREATEST_SPEEDUP = 2.0


@dataclass(frozen=True)
class MeasuredOn:
    """A device whose latencies somebody measured and wrote into a CSV file; unnamed, the file's only one."""

    file: Path
    device: str | None = None


@dataclass(frozen=True)
class Limits:
    """What a device can afford."""

    max_macs: float | None = None
    max_parameters: float | None = None
    max_latency_ms: float | None = None
    measured_on: MeasuredOn | None = None  # whose latency; that of this device otherwise

    def __post_init__(self) -> None:
        named = {
            "--max-macs": self.max_macs,
            "--max-params": self.max_parameters,
            "--max-latency": self.max_latency_ms,
        }
        if all(limit is None for limit in named.values()):
            raise InvalidInput("no limit was given: say --max-macs, --max-params or --max-latency.")
        for name, limit in named.items():
            if limit is not None and not limit > 0:
                raise InvalidInput(f"{name} {limit:g}: give a positive number.")
        if self.measured_on is not None and self.max_latency_ms is None:
            raise InvalidInput("--measured has latencies, and no limit was given for them: say --max-latency.")

    def admit(self, macs: float, parameters: float) -> bool:
        """Return whether a network of this cost is affordable, latency left aside."""
        return macs <= (self.max_macs or np.inf) and parameters <= (self.max_parameters or np.inf)

    def __str__(self) -> str:
        parts = []
        if self.max_macs is not None:
            parts.append(f"{self.max_macs:.0f} MACs")
        if self.max_parameters is not None:
            parts.append(f"{self.max_parameters:.0f} parameters")
        if self.max_latency_ms is not None:
            parts.append(f"{self.max_latency_ms:g} ms")
        return " and ".join(parts)


def choose_point(
    points: Sequence[OperatingPoint], limits: Limits, measure: MeasureLatency | None = None, hint: str = ""
) -> OperatingPoint:
    """Return the largest point within the limits; latency is measured from the largest down until one fits."""
    affordable = [point for point in points if limits.admit(point.price, point.parameters)]
    if not affordable:
        least = points[0]
        raise InvalidInput(
            f"no served variant fits {limits}: the smallest has {least.price} MACs and "
            f"{least.parameters} parameters{hint}."
        )
    if limits.max_latency_ms is None:
        return affordable[-1]
    assert measure is not None
    return _fastest_enough(affordable, limits.max_latency_ms, measure)


def _fastest_enough(points: Sequence[OperatingPoint], limit_ms: float, measure: MeasureLatency) -> OperatingPoint:
    within, fastest = np.inf, np.inf
    for point in reversed(points):
        if point.macs > within:
            continue
        latency_ms = measure(point)
        if latency_ms <= limit_ms:
            return point
        fastest = min(fastest, latency_ms)
        within = point.macs * GREATEST_SPEEDUP * limit_ms / latency_ms
        within = max(within, min(one.macs for one in points))  # the smallest is always measured
    raise InvalidInput(
        f"no served variant takes at most {limit_ms:g} ms on this device: the fastest measured takes {fastest:.3g} ms."
    )


def better_point(
    points: Sequence[OperatingPoint],
    chosen: OperatingPoint,
    limits: Limits,
    merits: Mapping[OperatingPoint, float],
    measure: MeasureLatency | None = None,
) -> OperatingPoint | None:
    """Return the best of the smaller points within the limits that validated better than the chosen one; None if none.

    ``merits`` are greater for what is better; a point without one was not validated, and nothing is known of it.
    """
    least = merits.get(chosen, np.inf)
    smaller = points[: points.index(chosen)]
    better = [one for one in smaller if limits.admit(one.price, one.parameters) and merits.get(one, -np.inf) > least]
    for point in sorted(better, key=lambda one: (-merits[one], one.price)):
        if limits.max_latency_ms is None:
            return point
        assert measure is not None
        if measure(point) <= limits.max_latency_ms:
            return point
    return None


def best_point(
    points: Sequence[OperatingPoint],
    limits: Limits,
    merits: Mapping[OperatingPoint, float],
    measure: MeasureLatency | None = None,
    hint: str = "",
) -> OperatingPoint:
    """Return the point within the limits that validated best: the largest one, unless a smaller one is better.

    Points that were not validated count only where no other fits.
    """
    validated = [point for point in points if point in merits and limits.admit(point.price, point.parameters)]
    largest = choose_point(validated or points, limits, measure, hint)
    return better_point(points, largest, limits, merits, measure) or largest


def spread_points(points: Sequence[OperatingPoint], number: int) -> tuple[OperatingPoint, ...]:
    """Return so many points from the smallest to the largest, evenly spread over those there are."""
    if number < 1:
        raise InvalidInput(f"--ladder {number}: give at least 1.")
    if number == 1:
        return (points[-1],)
    places = np.unique(np.linspace(0, len(points) - 1, min(number, len(points))).round().astype(int))
    return tuple(points[place] for place in places)
