"""Files that a recipe names, read as training will read them before a run takes copies of them."""

from fedfeast.planning.outline import outline
from fedfeast.planning.plan import count_examples
from fedfeast.recipes.building import build_method, build_speeds
from fedfeast.recipes.recipe import Recipe
from fedfeast.recipes.suitability import MEMBERS
from fedfeast.variants.cache import packaged_caches


def refuse_bad_files(recipe: Recipe) -> None:
    """Refuse budgets, variants, shards, splits and speeds that training would refuse, by the names they came by."""
    names_cache = recipe.variants.cache not in (*packaged_caches(), MEMBERS)
    names_examples = recipe.partition.file is not None or recipe.data.split_file is not None
    if recipe.population.source == "fleet":  # nobody has joined yet
        if names_cache:
            build_method(recipe)
    elif names_examples or names_cache or recipe.population.file is not None or recipe.simulation.names_file:
        built = outline(recipe)
        build_speeds(recipe, built.population.names)
        if names_examples:
            count_examples(built)
