import pytest

from fedfeast.errors import InvalidInput
from fedfeast.federation import OperatingPoint
from fedfeast.serving.choice import Limits, choose_point, spread_points

POINTS = tuple(OperatingPoint(str(macs), macs, 10 * macs, macs) for macs in (10, 20, 40, 80, 100))


def test_the_largest_within_macs_and_parameters() -> None:
    assert choose_point(POINTS, Limits(max_macs=50)).macs == 40
    assert choose_point(POINTS, Limits(max_macs=40)).macs == 40
    assert choose_point(POINTS, Limits(max_parameters=300)).macs == 20
    assert choose_point(POINTS, Limits(max_macs=90, max_parameters=1e9)).macs == 80


def test_a_budget_below_the_least_variant_is_said() -> None:
    with pytest.raises(
        InvalidInput, match=r"no served variant fits 9 MACs: the smallest has 10 MACs and 100 param.*!\."
    ):
        choose_point(POINTS, Limits(max_macs=9), hint="!")


@pytest.mark.parametrize(
    ("latencies", "limit", "chosen"),
    [
        ({10: 1, 20: 2, 40: 4, 80: 8, 100: 10}, 10, 100),
        ({10: 1, 20: 2, 40: 4, 80: 8, 100: 10}, 5, 40),
        ({10: 1, 20: 2, 40: 9, 80: 4, 100: 10}, 5, 80),  # more MACs, yet faster
        ({10: 1, 20: 2, 40: 9, 80: 8, 100: 10}, 5, 20),
        ({10: 1, 20: 50, 40: 50, 80: 50, 100: 50}, 1, 10),  # the smallest is always measured
    ],
)
def test_latency_decides_and_not_macs(latencies: dict[int, float], limit: float, chosen: int) -> None:
    assert choose_point(POINTS, Limits(max_latency_ms=limit), lambda point: latencies[point.macs]).macs == chosen


def test_what_is_certainly_too_slow_is_not_measured() -> None:
    measured = []

    def measure(point: OperatingPoint) -> float:
        measured.append(point.macs)
        return float(point.macs)

    assert choose_point(POINTS, Limits(max_latency_ms=15), measure).macs == 10
    assert measured == [100, 20, 10], "at 100 ms for 100 MACs nothing above 30 MACs takes 15 ms"
    measured.clear()
    assert choose_point(POINTS, Limits(max_macs=50, max_latency_ms=1000), measure).macs == 40
    assert measured == [40], "what costs too many MACs is not measured"


def test_nothing_is_fast_enough() -> None:
    with pytest.raises(InvalidInput, match=r"no served variant takes at most 0.5 ms.*fastest measured takes 1 ms"):
        choose_point(POINTS, Limits(max_latency_ms=0.5), lambda point: point.macs / 10)


def test_limits_are_positive_and_at_least_one() -> None:
    with pytest.raises(InvalidInput, match="no limit was given: say --max-macs, --max-params or --max-latency"):
        Limits()
    with pytest.raises(InvalidInput, match=r"--max-macs .*: give a positive number"):
        Limits(max_macs=0.0)
    with pytest.raises(InvalidInput, match=r"--max-latency .*: give a positive number"):
        Limits(max_latency_ms=-1.0)
    assert str(Limits(6e5, 1000, 2.5)) == "600000 MACs and 1000 parameters and 2.5 ms"


def test_a_ladder_spreads_over_the_points() -> None:
    assert [point.macs for point in spread_points(POINTS, 3)] == [10, 40, 100]
    assert [point.macs for point in spread_points(POINTS, 2)] == [10, 100]
    assert [point.macs for point in spread_points(POINTS, 1)] == [100]
    assert spread_points(POINTS, 99) == POINTS
    with pytest.raises(InvalidInput, match="--ladder 0: give at least 1"):
        spread_points(POINTS, 0)
