from collections.abc import Callable
from math import hypot, sqrt

import pytest

from fedfeast.studies.choosing.comparing import Standing

MakeStanding = Callable[..., Standing]


def test_the_same_difference_is_clear_on_many_test_examples_and_chance_on_few(standing: MakeStanding) -> None:
    for examples, is_clear in ((10_000, True), (200, False)):
        one = standing("feast", (0.90, 0.90), examples=examples)
        other = standing("fedavg", (0.88, 0.88), examples=examples)
        difference = one.score_over(other)
        assert difference.lead == pytest.approx(0.02)
        assert difference.is_clear == is_clear
        assert other.score_over(one).lead == pytest.approx(-0.02)


def test_chance_is_binomial_where_all_clients_gain_alike(standing: MakeStanding) -> None:
    one, other = standing("feast", (0.9, 0.9), examples=996), standing("fedavg", (0.5, 0.5), examples=996)
    # Two right and two wrong ones added.
    shares = [(0.9 * 996 + 2) / 1000, (0.5 * 996 + 2) / 1000]
    errors = [sqrt(share * (1 - share) / 1000) for share in shares]
    assert one.score_over(other).reach == pytest.approx(1.959964 * hypot(*errors))
    assert standing("feast", (1.0, 1.0), examples=100).score_reach > 0.01, "even where all are right"


def test_gains_that_differ_from_client_to_client_are_less_certain(standing: MakeStanding) -> None:
    other = standing("fedavg", (0.8, 0.8))
    alike, unlike = standing("feast", (0.82, 0.82)), standing("feast", (0.72, 0.92))
    assert alike.score == pytest.approx(unlike.score)
    assert alike.score_over(other).is_clear
    assert not unlike.score_over(other).is_clear


def test_seeds_that_disagree_are_less_certain_than_one(standing: MakeStanding) -> None:
    others = standing("fedavg", (0.8, 0.8), (0.8, 0.8))
    agreeing = standing("feast", (0.83, 0.83), (0.83, 0.83)).score_over(others)
    disagreeing = standing("feast", (0.78, 0.78), (0.88, 0.88)).score_over(others)
    assert agreeing.lead == pytest.approx(disagreeing.lead)
    assert agreeing.is_clear
    assert not disagreeing.is_clear


def test_the_worst_tenth_is_that_of_the_worst_served_clients(standing: MakeStanding) -> None:
    falling, rising = standing("feast", (0.9, 0.6)), standing("fedavg", (0.7, 0.8))
    assert falling.worst_score == pytest.approx(0.6)
    assert rising.worst_score == pytest.approx(0.7)
    assert rising.worst_over(falling).lead == pytest.approx(0.1)
    assert rising.worst_over(falling).is_clear
    unserved = standing("scalefl", (0.9, 0.9), prices=(1_300_000, 1_400_000))
    assert unserved.worst_score == 0.0
    assert unserved.served == pytest.approx(0.7, abs=0.05)
