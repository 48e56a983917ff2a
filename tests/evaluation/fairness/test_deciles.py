from typing import Any

import numpy as np
import pytest

from fedfeast.data.tasks import ACCURACY, task_named
from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.evaluation.fairness import Fairness, Participation, measure_fairness
from fedfeast.evaluation.fairness.deciles import TAKING_PART_FACTS

CURVE = Curve((CurvePoint("1k", 1000, 1, 0.5), CurvePoint("2k", 2000, 2, 0.8), CurvePoint("3k", 3000, 3, 0.7)))


def client(name: str, budget: float, examples: int = 10, participates: str = "1") -> dict[str, str]:
    return {"name": name, "budget_macs": str(budget), "num_examples": str(examples), "participates": participates}


def table(clients: list[dict[str, str]], rows: list[dict[str, Any]], curve: Curve | None = CURVE) -> Fairness:
    return measure_fairness(clients, Participation.of(rows, [one["name"] for one in clients]), ACCURACY, curve)


def test_tenths_are_by_budget_and_alike_in_size() -> None:
    clients = [client(f"{place}", 100.0 * (25 - place)) for place in range(25)]  # the first has the most
    fairness = table(clients, [{"clients": [0, 24]}], None)
    assert [one.clients for one in fairness.deciles] == [3] * 5 + [2] * 5
    assert [one.decile for one in fairness.deciles] == list(range(1, 11))
    ends = [(one.least_macs, one.greatest_macs) for one in fairness.deciles]
    assert ends[0] == (100.0, 300.0)
    assert ends[-1] == (2400.0, 2500.0)
    assert [one.asked for one in fairness.deciles] == [1, *[0] * 8, 1]
    assert [one.never_answered for one in fairness.deciles] == [2, *[3] * 4, *[2] * 4, 1]
    assert [one.answer_share for one in fairness.deciles] == [0.5, *[0.0] * 8, 0.5]


def test_what_is_not_known_is_none() -> None:
    fairness = table([client("a", 500.0)], [], None)
    (only,) = fairness.deciles
    for fact in ("late", "failed", "answer_seconds", "served", "value", "score", "score_best", "own_value"):
        assert getattr(only, fact) is None
    assert only.answer_share is None
    assert fairness.worst is None
    assert fairness.facts() == {"deciles": fairness.rows(), "worst_decile": None, "score_gap": None}
    assert measure_fairness([], Participation(), ACCURACY).deciles == ()


def test_who_took_part_may_have_to_stay_unknown() -> None:
    (only,) = measure_fairness([client("a", 2500.0)], None, ACCURACY, CURVE).deciles
    assert {getattr(only, fact) for fact in TAKING_PART_FACTS} == {None}
    assert (only.score, only.examples, only.training) == (0.8, 10, 1)


def test_scores_by_hand() -> None:
    clients = [client("tiny", 500.0, participates="0"), client("mid", 2500.0), client("large", 9000.0)]
    fairness = table(clients, [{"clients": [1, 2]}, {"clients": [2]}])
    tiny, mid, large = fairness.deciles
    assert (tiny.served, tiny.value, tiny.score, tiny.training) == (0, None, 0.0, 0)
    assert (mid.served, mid.value, mid.score) == (1, 0.8, 0.8)
    assert (large.score, large.score_best) == (0.7, 0.8)
    assert fairness.worst == tiny
    assert fairness.gap == pytest.approx(0.8)
    assert fairness.facts()["worst_decile"] == 1
    mean = np.mean([one.score for one in fairness.deciles])
    assert mean == pytest.approx(CURVE.population_score(np.array([500.0, 2500.0, 9000.0])))


def test_less_may_be_better_and_own_examples_count_by_the_network_that_serves() -> None:
    bits = task_named("next-token").metric
    curve = Curve((CurvePoint("1k", 1000, 1, 3.0), CurvePoint("2k", 2000, 2, 2.0)), bits, 6.0)
    clients = [client("a", 1500.0), client("b", 2500.0), client("c", 2600.0)]
    own = {"a": (2.5, 9.0), "b": (9.0, float("nan")), "c": (9.0, 1.5), "held out": (1.0, 1.0)}
    fairness = measure_fairness(clients, Participation(), bits, curve, own)
    assert [one.own_value for one in fairness.deciles] == [2.5, None, 1.5]
    assert fairness.worst == fairness.deciles[0]
    assert fairness.gap == pytest.approx(1.0)


def test_a_fleets_seconds_are_medians_over_answers() -> None:
    seconds = [{"a": 1.0, "b": 4.0}, {"a": 2.0}, {"a": float("inf")}]
    rows = [{"clients": [0, 1], "answered": [0, 1], "answer_seconds": one} for one in seconds]
    fairness = table([client("a", 500.0), client("b", 600.0)], rows)
    assert [one.answer_seconds for one in fairness.deciles] == [1.5, 4.0]
    assert [one.late for one in fairness.deciles] == [0, 0]
    assert fairness.to_frame().loc[2, "answer_seconds"] == 4.0
