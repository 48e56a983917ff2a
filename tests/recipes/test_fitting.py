from pathlib import Path

import numpy as np
import pytest

from fedfeast.data import prepare_data
from fedfeast.errors import InvalidInput
from fedfeast.planning.outline import outline
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_cache, build_network
from fedfeast.variants import search


@pytest.fixture
def photos(tmp_path: Path) -> dict[str, str]:
    """Return the settings that name 200 grey images of 48 x 48 in four classes."""
    images = np.zeros((200, 48, 48), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", inputs=images[:, None], labels=np.arange(200) % 4)
    prepare_data("mine", tmp_path / "mine.npz", tmp_path / "data")
    return {"data.name": "mine", "data.folder": str(tmp_path / "data")}


def test_small_images_fits_itself_to_its_data(photos: dict[str, str]) -> None:
    recipe = load_recipe("small-images", photos)
    assert (recipe.data.validation_examples, recipe.data.calibration_examples) == (24, 16)
    assert (recipe.population.num_clients, recipe.training.clients_per_round) == (5, 5)
    network = build_network(recipe)
    least, greatest = network.macs(network.smallest), network.macs(network.largest)
    budgets = recipe.population
    assert (budgets.least_macs, budgets.greatest_macs, budgets.cap_macs) == (least, 2 * greatest, greatest)
    assert (recipe.variants.least_target_macs, recipe.variants.greatest_target_macs) == (least, greatest)
    assert load_recipe("small-images").population.least_macs < least, "images of 32 x 32 cost less"


def test_what_is_given_stays(photos: dict[str, str]) -> None:
    given = {"population.num_clients": 3, "data.validation_examples": 40, "variants": {"cache": "mine.csv"}}
    recipe = load_recipe("small-images", {**photos, **given})
    assert (recipe.population.num_clients, recipe.data.validation_examples) == (3, 40)
    assert recipe.training.clients_per_round == 3
    assert recipe.variants.least_target_macs == 25e6, "a section that is given whole"


def test_a_cache_is_searched_once_for_any_space(photos: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe("small-images", {**photos, "variants.num_targets": 3})
    built = outline(recipe)
    assert [variant.macs for variant in built.cache] == sorted(variant.macs for variant in built.cache)
    assert built.cache[0].macs == recipe.variants.least_target_macs
    assert built.cache[1].macs <= np.sqrt(recipe.variants.least_target_macs * recipe.variants.greatest_target_macs) + 1
    monkeypatch.setattr(search, "_solve", None)  # a second search would fail
    assert build_cache(recipe, build_network(recipe)) == built.cache


def test_a_cache_of_another_space_names_the_way_out(photos: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match=r"another space; variants\.cache=searched makes one for this space"):
        outline(load_recipe("digits", photos))
    with pytest.raises(InvalidInput, match="'searched' is for the elastic ResNet"):
        load_recipe("motion", {"variants.cache": "searched"})


def test_a_folder_is_told_from_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is a folder and no recipe: fedfeast train takes a folder of photos"):
        load_recipe(str(tmp_path))
