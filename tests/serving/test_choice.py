import pytest

from fedfeast.errors import InvalidInput
from fedfeast.federation import OperatingPoint
from fedfeast.serving.choice import Limits, best_point, better_point, choose_point, spread_points

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


def merits(*values: float) -> dict[OperatingPoint, float]:
    """Return what the points validated as; the last ones were not validated where there are too few values."""
    return dict(zip(POINTS, values, strict=False))


@pytest.mark.parametrize(
    ("values", "limits", "better"),
    [
        ((1, 2, 3, 4, 5), Limits(max_macs=100), None),
        ((1, 6, 3, 7, 5), Limits(max_macs=100), 80),
        ((9, 6, 3, 9, 5), Limits(max_macs=100), 10),  # of equals the smaller one
        ((1, 5, 3, 4, 5), Limits(max_macs=100), None),  # equal is not better
        ((1, 6, 3, 7, 5), Limits(max_macs=50), 20),  # the better one of 80 MACs is not affordable
    ],
)
def test_a_smaller_one_may_validate_better(values: tuple[float, ...], limits: Limits, better: int | None) -> None:
    chosen = choose_point(POINTS, limits)
    found = better_point(POINTS, chosen, limits, merits(*values))
    assert (None if found is None else found.macs) == better
    assert best_point(POINTS, limits, merits(*values)) == (found or chosen)


def test_of_what_was_not_validated_nothing_is_said() -> None:
    limits = Limits(max_macs=100)
    assert better_point(POINTS, POINTS[4], limits, merits(1, 6, 3)) is None
    assert best_point(POINTS, limits, merits(1, 6, 3)).macs == 20
    assert best_point(POINTS, limits, merits(1, 2, 3)).macs == 40, "the largest that was validated"
    assert best_point(POINTS, limits, {}).macs == 100
    assert best_point(POINTS, Limits(max_macs=10), {POINTS[2]: 1.0}).macs == 10, "no other fits"
    with pytest.raises(InvalidInput, match="no served variant fits 5 MACs: the smallest has 10 MACs"):
        best_point(POINTS, Limits(max_macs=5), merits(1, 2, 3))


def test_a_better_one_is_within_every_limit() -> None:
    heavy = tuple(OperatingPoint(str(macs), macs, size, macs) for macs, size in ((10, 500), (20, 100), (40, 100)))
    better = dict(zip(heavy, (3.0, 2.0, 1.0), strict=True))
    limits = Limits(max_macs=50, max_parameters=100)
    assert better_point(heavy, heavy[2], limits, better) == heavy[1], "the smallest has too many parameters"
    times = {10: 9.0, 20: 1.0, 40: 1.0, 80: 1.0, 100: 1.0}
    found = better_point(
        POINTS, POINTS[4], Limits(max_latency_ms=5), merits(5, 4, 1, 1, 1), lambda point: times[point.macs]
    )
    assert found == POINTS[1], "the smallest takes too long"
