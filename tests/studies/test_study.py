from fedfeast.recipes import load_recipe, packaged_recipes
from fedfeast.studies.study import RECIPES


def test_every_data_set_has_its_recipe() -> None:
    assert set(RECIPES.values()) <= set(packaged_recipes())
    for dataset, recipe in RECIPES.items():
        assert load_recipe(recipe).data.name == dataset
        assert load_recipe(recipe).name == recipe
