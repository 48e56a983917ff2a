from fedfeast.recipes.recipe import packaged_recipes
from fedfeast.recipes.recipe_list import list_recipes


def test_each_recipe_says_in_a_sentence_what_it_trains() -> None:
    listed = {one["name"]: one for one in list_recipes()}
    assert tuple(listed) == packaged_recipes()
    for one in listed.values():
        assert one["summary"].endswith(".")
        assert "fedfeast train" not in one["summary"]
        assert one["rounds"] >= one["clients_per_round"] > 0
    assert (listed["motion"]["clients"], listed["cifar100-short"]["rounds"]) == (None, 1000), "the data's own clients"
