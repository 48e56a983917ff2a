import numpy as np
import pytest

from fedfeast.evaluation import Curve, CurvePoint, count_client_wins, served_points
from fedfeast.federation import OperatingPoint


def curve(*accuracies: float) -> Curve:
    return Curve(
        tuple(
            CurvePoint(str(macs), macs, 1, accuracy) for macs, accuracy in zip((10, 20, 40), accuracies, strict=False)
        )
    )


BUDGETS = np.array([9.0, 10.0, 19.9, 20.0, 1e9])


def test_each_client_gets_the_largest_it_affords() -> None:
    measured = curve(0.5, 0.7, 0.6)
    assert measured.client_accuracies(BUDGETS).tolist() == [0.0, 0.5, 0.5, 0.7, 0.6]
    assert measured.population_score(BUDGETS) == pytest.approx(2.3 / 5)
    assert measured.served_share(BUDGETS) == 0.8
    assert measured.serve(9) is None
    served = measured.serve(39)
    assert served is not None
    assert served.macs == 20


def test_client_wins() -> None:
    wins = count_client_wins(curve(0.5, 0.7, 0.6), curve(0.5, 0.6, 0.9), BUDGETS)
    assert (wins.wins, wins.ties, wins.losses) == (1, 3, 1)


def test_only_points_that_serve_somebody_are_validated() -> None:
    points = [OperatingPoint(str(macs), macs, 1, macs) for macs in (10, 20, 40, 50)]
    chosen = served_points(points, np.array([5.0, 12.0, 45.0, 46.0]))
    assert [point.macs for point in chosen] == [10, 40]
