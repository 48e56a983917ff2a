from collections.abc import Callable
from math import sqrt

import pytest

from fedfeast.studies.choosing.comparing import Standing

MakeStanding = Callable[..., Standing]


def test_the_worst_tenth_is_that_of_the_worst_served_clients(standing: MakeStanding) -> None:
    falling, rising = standing("feast", 0.9, 0.6), standing("fedavg", 0.7, 0.8)
    assert falling.worst_score == pytest.approx(0.6)
    assert rising.worst_score == pytest.approx(0.7)
    assert rising.is_clearly_fairer(falling)
    assert not falling.is_clearly_fairer(rising)
    assert not standing("feast", 0.71, 0.8).is_clearly_fairer(rising), "2,000 examples do not tell 1 point"


def test_clients_without_a_network_are_the_worst_served(standing: MakeStanding) -> None:
    unserved = standing("scalefl", 0.9, 0.9, prices=(1_300_000, 1_400_000))
    assert unserved.worst_score == 0.0
    assert unserved.served == pytest.approx(0.7)


def test_a_score_varies_with_the_test_examples_even_where_all_are_right(standing: MakeStanding) -> None:
    share = (0.9 * 2000 + 2) / 2004
    one = standing("feast", 0.9, 0.9, by_seed=[0.0])
    assert one.score_reach == pytest.approx(1.959964 * sqrt(share * (1 - share) / 2004))
    assert standing("feast", 1.0, 1.0, by_seed=[0.0]).score_reach > 0.001
