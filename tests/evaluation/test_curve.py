import json

import numpy as np
import pytest

from fedfeast.data.tasks import ACCURACY, task_named
from fedfeast.errors import InvalidInput
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
    assert measured.client_values(BUDGETS).tolist() == [0.0, 0.5, 0.5, 0.7, 0.6]
    assert measured.population_score(BUDGETS) == pytest.approx(2.3 / 5)
    assert measured.served_share(BUDGETS) == 0.8
    assert measured.serve(9) is None
    served = measured.serve(39)
    assert served is not None
    assert served.macs == 20


def test_each_client_may_get_the_best_it_affords() -> None:
    measured = curve(0.5, 0.7, 0.6)
    assert measured.client_values(BUDGETS, "best").tolist() == [0.0, 0.5, 0.5, 0.7, 0.7]
    scores = measured.population_scores(BUDGETS)
    assert scores == pytest.approx({"population_score": 2.3 / 5, "population_score_best": 2.4 / 5})
    assert bits(2.0, 2.5).client_values(BUDGETS, "best").tolist() == [6.0, 2.0, 2.0, 2.0, 2.0], "less is better"
    assert Curve(()).population_score(BUDGETS, "best") == 0.0


def test_a_listed_price_decides_who_is_served() -> None:
    points = (CurvePoint("a", 30, 1, 0.5, listed_price=10), CurvePoint("b", 25, 1, 0.7, listed_price=20))
    measured = Curve(points)
    assert measured.is_priced
    assert measured.client_values(BUDGETS).tolist() == [0.0, 0.5, 0.5, 0.7, 0.7]
    assert measured.served_share(BUDGETS) == 0.8
    rows = measured.rows()
    assert [(row["macs"], row["price"]) for row in rows] == [(30, 10), (25, 20)]
    assert [point.price for point in Curve.read(rows, measured.facts()).points] == [10, 20]
    assert "price" not in curve(0.5).rows()[0], "files of caches without prices stay as they were"


def test_client_wins() -> None:
    wins = count_client_wins(curve(0.5, 0.7, 0.6), curve(0.5, 0.6, 0.9), BUDGETS)
    assert (wins.wins, wins.ties, wins.losses) == (1, 3, 1)


def test_only_points_that_serve_somebody_are_validated() -> None:
    points = [OperatingPoint(str(macs), macs, 1, macs) for macs in (10, 20, 40, 50)]
    chosen = served_points(points, np.array([5.0, 12.0, 45.0, 46.0]))
    assert [point.macs for point in chosen] == [10, 40]


BITS = task_named("next-token").metric


def bits(*values: float, unserved: float = 6.0) -> Curve:
    points = (
        CurvePoint(str(macs), macs, 1, value, {"bits": value}) for macs, value in zip((10, 20), values, strict=True)
    )
    return Curve(tuple(points), BITS, unserved)


def test_less_may_be_better() -> None:
    measured = bits(2.5, 2.0)
    assert measured.client_values(BUDGETS).tolist() == [6.0, 2.5, 2.5, 2.0, 2.0]
    assert measured.population_score(BUDGETS) == pytest.approx(3.0)
    assert measured.best.macs == 20
    assert curve(0.5, 0.7, 0.6).best.macs == 20
    wins = count_client_wins(measured, bits(2.6, 2.0), BUDGETS)
    assert (wins.wins, wins.ties, wins.losses) == (2, 3, 0)
    with pytest.raises(InvalidInput, match="one curve is of bits and the other of accuracy"):
        count_client_wins(measured, curve(0.5, 0.7, 0.6), BUDGETS)


def test_nobody_wins_by_leaving_clients_out() -> None:
    good_and_large = Curve((CurvePoint("20", 20, 1, 1.0),), BITS, 6.0)
    assert good_and_large.population_score(BUDGETS) > bits(2.5, 2.0).population_score(BUDGETS)


def test_accuracies_are_written_as_ever_and_other_figures_beside_them() -> None:
    (row,) = Curve((CurvePoint("1k", 1000, 10, 0.5),)).rows()
    costs = {"name": "1k", "macs": 1000, "parameters": 10}
    assert row == {**costs, "accuracy": 0.5, "value": 0.5, "figures": {"accuracy": 0.5}}
    assert Curve((CurvePoint("1k", 1000, 10, 0.5),)).table() == [{**costs, "accuracy": 0.5}]
    figures = {"bits": 2.5, "accuracy": 0.4, "perplexity": 5.7}
    text = Curve((CurvePoint("1k", 1000, 10, 2.5, figures, 0.1),), BITS, 6.0)
    (row,) = text.rows()
    assert row == {**costs, "accuracy": 0.4, "value": 2.5, "figures": figures, "standard_error": 0.1}
    assert text.table() == [{**costs, **figures, "standard_error": 0.1}]
    assert "accuracy" not in bits(2.0, 1.0).rows()[0]


def test_a_curve_is_read_as_it_was_written() -> None:
    for measured in (bits(2.5, 2.0), Curve((CurvePoint("1k", 1000, 10, 0.5, {"accuracy": 0.5}),))):
        content = json.loads(json.dumps({**measured.facts(), "curve": measured.rows()}))
        assert Curve.read(content["curve"], content) == measured


def test_a_curve_of_the_first_release_is_of_accuracies() -> None:
    row = {"name": "1k", "macs": 1000, "parameters": 10, "accuracy": 0.5}
    old = Curve.read([row], {"finished_rounds": 3})
    assert old == Curve((CurvePoint("1k", 1000, 10, 0.5, {"accuracy": 0.5}),), ACCURACY, 0.0)
    assert old.points[0].accuracy == old.points[0].value == 0.5


def test_not_every_point_has_an_accuracy() -> None:
    assert CurvePoint("1k", 1000, 1, 2.5, {"bits": 2.5, "accuracy": 0.4}).accuracy == 0.4
    with pytest.raises(InvalidInput, match="1k has no accuracy: its figures are rmse, mae"):
        _ = CurvePoint("1k", 1000, 1, 0.1, {"rmse": 0.1, "mae": 0.2}).accuracy


def test_an_accuracy_on_few_examples_has_an_interval() -> None:
    def interval(value: float, examples: int | None) -> tuple[float, float] | None:
        return CurvePoint("1k", 1000, 1, value, examples=examples).interval

    assert interval(0.98, None) is None
    assert interval(0.98, 5000) is None
    assert interval(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)  # Wilson's, by hand
    all_right = interval(1.0, 10)
    assert all_right == pytest.approx((0.7225, 1.0), abs=1e-4)
    small, large = interval(0.9, 100), interval(0.9, 1000)
    assert small is not None
    assert large is not None
    assert small[0] < large[0] < 0.9 < large[1] < small[1]


def test_examples_are_kept_in_files_and_not_in_tables() -> None:
    curve = Curve((CurvePoint("1k", 1000, 10, 0.5, {"accuracy": 0.5}, examples=355),))
    assert curve.rows()[0]["examples"] == 355
    assert Curve.read(curve.rows(), curve.facts()) == curve
    assert "examples" not in curve.table()[0]
