from typing import Any

import numpy as np
import pytest

from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Curve, CurvePoint, Selection
from fedfeast.evaluation.selection import spread
from fedfeast.federation import OperatingPoint

PRICES = (100, 200, 400, 800)
POINTS = [OperatingPoint(f"{price}", 2 * price, 1, price, price) for price in PRICES]
BUDGETS = np.array([100.0, 150.0, 450.0])


def measured(selection: Selection, values: tuple[float, ...] = (0.5, 0.7, 0.6, 0.9)) -> Any:
    """Return which points are validated, and what they come to."""
    needed = selection.points(POINTS, BUDGETS)
    by_name = dict(zip(map(str, PRICES), values, strict=True))
    curve = Curve(tuple(CurvePoint(one.name, one.macs, 1, by_name[one.name], {}, None, one.price) for one in needed))
    return [one.name for one in needed], selection.score(curve, POINTS, BUDGETS)


def test_the_population_score_needs_what_serves_somebody() -> None:
    assert measured(Selection()) == (["100", "400"], pytest.approx((0.5 + 0.5 + 0.6) / 3))


def test_the_best_affordable_needs_all_that_somebody_affords() -> None:
    assert measured(Selection(serving="best")) == (["100", "200", "400"], pytest.approx((0.5 + 0.5 + 0.7) / 3))


def test_the_largest_alone() -> None:
    assert measured(Selection("largest")) == (["800"], 0.9)


def test_anchors_by_row_or_by_the_nearest_price() -> None:
    expected = (["100", "800"], pytest.approx(0.7))
    assert measured(Selection("anchors", anchors=(0, 3))) == expected
    assert measured(Selection("anchors", anchors=(90.0, 750.0))) == expected
    # An anchor that is named twice counts twice, and is measured once.
    assert measured(Selection("anchors", anchors=(0, 110.0, 3))) == (["100", "800"], pytest.approx(1.9 / 3))


@pytest.mark.parametrize("anchor", [4, 17.5])
def test_an_anchor_that_is_none(anchor: float) -> None:
    with pytest.raises(InvalidInput, match=rf"anchors has {anchor:g}.* 4 networks.* rows from 0 to 3, or MACs"):
        Selection("anchors", anchors=(0, anchor)).points(POINTS, BUDGETS)


def test_every_rule_is_put_in_words() -> None:
    rules = [Selection(), Selection(serving="best"), Selection("anchors", anchors=(0, 1)), Selection("largest")]
    assert len({one.words for one in rules}) == 4
    assert rules[2].words == "mean of 2 anchors"


@pytest.mark.parametrize(("most", "expected"), [(1, "d"), (2, "ad"), (3, "acd"), (4, "abcd"), (9, "abcd")])
def test_sizes_are_spread_from_the_first_to_the_last(most: int, expected: str) -> None:
    assert "".join(spread("abcd", most)) == expected
    assert spread([], most) == ()
