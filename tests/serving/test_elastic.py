import pytest

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.planning.outline import outline
from fedfeast.recipes import load_recipe
from fedfeast.serving.choice import Limits
from fedfeast.serving.elastic import least_possible, search_point
from fedfeast.serving.support import TrainedSupport


def test_a_searched_network_uses_the_budget_and_trained_weights(run: fedfeast.Run) -> None:
    built = outline(run.recipe)
    point = search_point(built, Limits(max_macs=700e3))
    assert 0.9 * 700e3 <= point.macs <= 700e3
    assert point not in built.method.operating_points()
    share = TrainedSupport(built).untrained_share(point.architecture)
    assert share is not None
    assert share <= 0.01


def test_what_cannot_be_searched_is_said(run: fedfeast.Run) -> None:
    built = outline(run.recipe)
    with pytest.raises(InvalidInput, match="128320"):
        search_point(built, Limits(max_macs=1000))
    with pytest.raises(InvalidInput, match="--search counts costs and cannot measure"):
        search_point(built, Limits(max_latency_ms=5))
    assert "the least possible is 128320 MACs" in least_possible(built)


def test_a_family_without_a_space_has_nothing_to_search() -> None:
    built = outline(load_recipe("digits", {"method.name": "heterofl"}))
    assert least_possible(built) == ""
    with pytest.raises(InvalidInput, match="--search: heterofl has no space of networks"):
        search_point(built, Limits(max_macs=1e6))
