import numpy as np
import pytest

from fedfeast.planning.cost import Cost, estimate_cost
from fedfeast.planning.outline import outline
from fedfeast.recipes import load_recipe


def test_time_and_memory_of_the_rounds_that_are_left() -> None:
    built = outline(load_recipe("digits"))
    sizes = np.full(40, 30.0)
    cost = estimate_cost(built, sizes, rounds=7)
    assert (cost.rounds, cost.engine, cost.threads) == (7, "eager", 1)
    assert cost.seconds_per_round is not None
    assert 0.01 < cost.seconds_per_round < 60
    assert 0.4 < cost.gib < 1
    several = estimate_cost(built, sizes, rounds=7, processes=2)
    assert (several.seconds_per_round, several.gib) == (None, cost.gib)


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (
            Cost(4000, "eager", 1.234, 125.0, 2),
            "4,000 rounds will take about 5.8 days here (2 min a round, 2 threads) and 1.2 GiB of memory",
        ),
        (
            Cost(60, "graphs", 11.3),
            "60 rounds will need about 11 GiB of GPU memory; how long they take shows after the first ones",
        ),
    ],
)
def test_the_cost_is_one_line(cost: Cost, said: str) -> None:
    assert str(cost) == said
