import numpy as np
import pytest

from fedfeast.networks import ElasticResNet
from fedfeast.planning.outline import Outline, outline
from fedfeast.planning.validated_sizes import CHEAP_SHARE, further_sizes, share_of_training
from fedfeast.recipes import load_recipe


def built(**settings: object) -> Outline:
    return outline(load_recipe("digits", {key.replace("__", "."): value for key, value in settings.items()}))


def examples_of(one: Outline) -> np.ndarray:
    return np.full(one.population.num_clients, 30.0)


def names(one: Outline) -> list[str]:
    return [point.name for point in further_sizes(one, examples_of(one))]


LARGEST = {"evaluation__selection": "largest"}  # which needs one size of the digits' eight


def test_all_sizes_where_that_costs_little() -> None:
    one = built(**LARGEST, evaluation__every_rounds=20)
    points = one.method.operating_points()
    assert names(one) == [point.name for point in points[:-1]]
    assert share_of_training(one, points[:-1], examples_of(one)) < CHEAP_SHARE


def test_the_cost_is_that_of_passes_over_the_servers_examples_against_three_times_those_of_training() -> None:
    one = built(**LARGEST, training__rounds=20, evaluation__every_rounds=8, method__name="fedavg")
    (point,) = one.method.operating_points()
    validation = 3 * (160 + 120) * point.macs  # after rounds 8, 16 and 20
    training = 3 * 20 * 10 * 30 * one.method.network.convolution_macs(point.architecture)  # rounds, clients, examples
    assert share_of_training(one, (point,), examples_of(one)) == pytest.approx(validation / training)


def test_networks_without_convolutions_are_counted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    one = built(**LARGEST, training__rounds=20, evaluation__every_rounds=8, method__name="fedavg")
    (point,) = one.method.operating_points()
    monkeypatch.setattr(ElasticResNet, "convolution_macs", lambda network, architecture: 0)
    share = 3 * (160 + 120) / (3 * 20 * 10 * 30)
    assert share_of_training(one, (point,), examples_of(one)) == pytest.approx(share)


def test_a_few_with_the_smallest_and_the_largest_where_all_cost_more() -> None:
    one = built(**LARGEST, evaluation__every_rounds=10)
    points = one.method.operating_points()
    assert share_of_training(one, points[:-1], examples_of(one)) > CHEAP_SHARE
    assert names(one) == [points[place].name for place in (0, 2, 4, 5)], "and the largest, by which rounds are chosen"
    assert share_of_training(one, further_sizes(one, examples_of(one)), examples_of(one)) < CHEAP_SHARE
    assert names(built(**LARGEST, evaluation__every_rounds=1)) == [points[0].name], "fewer, where even these cost more"
    assert len(names(built(**LARGEST, evaluation__every_rounds=1, evaluation__sizes="all"))) == 7, "whatever they cost"


@pytest.mark.parametrize(("sizes", "expected"), [(1, []), (2, [0]), (3, [0, 4]), (100, [0, 1, 2, 3, 4, 5, 6])])
def test_a_number_of_sizes_from_the_smallest_to_the_largest(sizes: int, expected: list[int]) -> None:
    one = built(**LARGEST, evaluation__sizes=sizes)
    points = one.method.operating_points()
    assert names(one) == [points[place].name for place in expected]


def test_nothing_further_where_none_is_wanted_all_are_needed_or_clients_evaluate() -> None:
    assert names(built(**LARGEST, evaluation__sizes="none")) == []
    assert names(built(evaluation__by="clients")) == []
    assert names(built(method__name="fedavg")) == []
    one = built(evaluation__score="best")
    assert names(one) == []


def test_of_a_fleet_whose_training_has_no_known_cost_a_few() -> None:
    one = built(**LARGEST)
    fleet = Outline(
        load_recipe("digits", {"evaluation.selection": "largest", "population.source": "fleet"}),
        *(one.method, one.cache, one.population, one.participants),
    )
    assert len(names(fleet)) == 4
    assert names(fleet)[0] == one.method.operating_points()[0].name
