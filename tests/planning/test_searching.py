from pathlib import Path

import own_networks
import pytest
from own_networks import built_cnn

from fedfeast.errors import InvalidInput
from fedfeast.networks.built import Member
from fedfeast.planning.searching import search_members, search_recipe
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import targets_of
from fedfeast.variants import read_cache
from fedfeast.variants.search import Found

RECIPE = load_recipe("digits")


def test_targets_are_evenly_spaced() -> None:
    paper = targets_of(load_recipe("cifar100-paper"))
    assert (len(paper), paper[0], paper[-1]) == (56, 25e6, 600e6)
    assert targets_of(RECIPE)[:2] == pytest.approx([150e3, 150e3 + 4.85e6 / 7])


def test_a_searched_cache_can_be_trained_on(tmp_path: Path) -> None:
    result = search_recipe(RECIPE)
    result.write(tmp_path / "mine.csv")
    cache = read_cache(str(tmp_path / "mine.csv"), result.network)
    assert [variant.macs for variant in cache] == [one.macs for one in result.distinct]
    assert all(one.macs <= one.target_macs for one in result.found)
    header = (tmp_path / "mine.csv").read_text().splitlines()[0].split(",")
    assert header[-4:] == ["fitness_score", "effectiveness", "entropy", "target"]


def test_the_same_seed_gives_the_same_cache() -> None:
    assert search_recipe(RECIPE).found == search_recipe(RECIPE).found


def test_repeated_targets_are_reported_once() -> None:
    result = search_recipe(RECIPE, [200e3, 200e3 + 1])
    assert result.repeated == (1,)
    assert len(result.distinct) == 1


def test_a_target_below_the_least_network_is_refused() -> None:
    with pytest.raises(InvalidInput, match="128320"):
        search_recipe(RECIPE, [1000.0])


def test_a_network_of_one_s_own_is_searched_by_its_members(tmp_path: Path) -> None:
    network = built_cnn()
    said: list[Found] = []
    result = search_members(network, RECIPE, None, said.append)
    assert list(result.found) == said
    assert (result.found[0].architecture, result.found[-1].architecture) == (network.smallest, network.largest)
    result.write(tmp_path / "mine.csv")
    assert [one.macs for one in read_cache(str(tmp_path / "mine.csv"), network)] == [one.macs for one in said]


def fewest_layers(member: Member) -> float:
    return member.values["width"] - 10 * member.values["depth"]


def test_a_score_of_one_s_own_decides_a_search() -> None:
    builder = f"{Path(own_networks.__file__).resolve()}:cnn"
    named = {"network.builder": builder, "variants.cache": "members", "variants.score": f"{__file__}:fewest_layers"}
    result = search_recipe(load_recipe("digits", named))
    assert [one.architecture.values["depth"] for one in result.found] == [1, 1]
    assert [one.fitness for one in result.found] == [-8, -6]
