from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tiny import NETWORK, SPACE

from fedfeast.errors import InvalidInput
from fedfeast.networks import Architecture, ElasticResNet, SearchSpace
from fedfeast.networks.cost import count_macs, count_parameters
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_cache, build_network
from fedfeast.variants import draw_architectures, draw_cache, read_cache

PAPER = SearchSpace()
TINY = replace(SPACE, stem_channels=8, stage_channels=(16, 32), image_channels=3, classes=3)


class Counting(np.random.Generator):
    """Counts the candidates that were drawn, one a row."""

    rows = 0

    def integers(self, *arguments: Any, **options: Any) -> Any:
        drawn = super().integers(*arguments, **options)
        self.rows += len(drawn)
        return drawn


def test_so_many_networks_of_the_space_within_the_budget() -> None:
    generator = named_generator(0)
    for count, limit in ((0, 60e6), (1, 60e6), (7, 100e6), (5000, np.inf)):
        drawn = draw_architectures(PAPER, count, limit, generator)
        assert len(drawn) == count
        for architecture in drawn[:50]:
            PAPER.validate(architecture)
            assert count_macs(PAPER, architecture) <= limit


def test_a_uniform_network_of_the_papers_space() -> None:
    """The fact sheet's figures: MACs mean 426M, median 387M, p5 to p95 108M to 880M, 8.44M parameters on average."""
    drawn = draw_architectures(PAPER, 8192, np.inf, named_generator(0, "uniform"))
    megamacs = np.array([count_macs(PAPER, one) for one in drawn]) / 1e6
    assert megamacs.mean() == pytest.approx(426, rel=0.02)
    assert np.quantile(megamacs, [0.05, 0.5, 0.95]) == pytest.approx([108, 387, 880], rel=0.04)
    assert np.mean([count_parameters(PAPER, one) for one in drawn]) / 1e6 == pytest.approx(8.44, rel=0.02)


def test_every_choice_is_uniform() -> None:
    drawn = draw_architectures(PAPER, 8192, np.inf, named_generator(0, "uniform"))
    columns = [
        *zip(*(one.depths for one in drawn), strict=True),
        *zip(*(one.expansions for one in drawn), strict=True),
        *zip(*(one.width_indices for one in drawn), strict=True),
    ]
    choices = [9] * 4 + [5] * 4 + [10] * 5
    for column, number in zip(columns, choices, strict=True):
        counts = np.unique(column, return_counts=True)[1]
        assert len(counts) == number
        deviation = np.sqrt(8192 * (1 / number) * (1 - 1 / number))
        assert np.abs(counts - 8192 / number).max() < 5 * deviation


@pytest.mark.parametrize(
    ("limit", "acceptance", "count"),
    [
        (25e6, 4.8e-4, 300),
        (40e6, 3.1e-3, 1000),
        (55e6, 8.7e-3, 1000),
        (100e6, 0.042, 2000),
        (300e6, 0.35, 15_000),
        (596e6, 0.78, 30_000),
    ],
)
def test_the_share_of_networks_that_a_budget_affords(limit: float, acceptance: float, count: int) -> None:
    generator = Counting(named_generator(0, "acceptance").bit_generator)
    draw_architectures(PAPER, count, limit, generator)
    tried = generator.rows - 2048  # of the last lot half, on average
    assert count / tried == pytest.approx(acceptance, rel=0.15 if limit == 25e6 else 0.08)


def test_within_a_budget_draws_are_the_affordable_ones_of_all_draws() -> None:
    """Conditionally uniform: nothing but what is too costly is left out, and the order stays."""
    everything = draw_architectures(PAPER, 3 * 4096, np.inf, named_generator(0, "same"))
    macs = [count_macs(PAPER, one) for one in everything]
    limit = sorted(macs)[700]  # what costs just as much is affordable
    affordable = [one for one, cost in zip(everything, macs, strict=True) if cost <= limit]
    assert draw_architectures(PAPER, len(affordable), limit, named_generator(0, "same")) == affordable


def test_the_smallest_network_is_drawn_where_nothing_else_fits() -> None:
    least = count_macs(TINY, TINY.smallest)
    drawn = draw_architectures(TINY, 3, least, named_generator(0))
    assert {count_macs(TINY, one) for one in drawn} == {least}
    assert isinstance(drawn[0], Architecture)


def test_a_budget_below_every_network_is_refused() -> None:
    least = count_macs(TINY, TINY.smallest)
    with pytest.raises(
        InvalidInput, match=rf"no network of the space costs at most {least - 1} .*smallest has {least}"
    ):
        draw_architectures(TINY, 1, least - 1, named_generator(0))


def test_drawing_is_given_up_where_hardly_any_network_is_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfeast.variants.drawing.MOST_BATCHES", 3)
    with pytest.raises(InvalidInput, match="none of 12,288 networks drawn from the space costs at most 4000000 MACs"):
        draw_architectures(PAPER, 1, 4e6, named_generator(0))


@pytest.mark.parametrize(
    ("recipe_name", "cache"), [("digits", "digits-8-random"), ("cifar100-paper", "cifar100-56-random")]
)
def test_the_packaged_random_caches_are_what_their_script_draws(recipe_name: str, cache: str) -> None:
    recipe = load_recipe(recipe_name)
    network = build_network(recipe)
    assert isinstance(network, ElasticResNet)
    costs = [variant.macs for variant in build_cache(recipe, network)]
    assert draw_cache(network, costs, named_generator(0, "random cache")) == read_cache(cache, network)


def test_costs_that_the_space_does_not_have_are_refused() -> None:
    with pytest.raises(InvalidInput, match="costs 95% to 100 % of 10 MACs: give costs that the space has"):
        draw_cache(NETWORK, [10], named_generator(0))
