"""What was asked: a recipe as one validated tree, and the parts that are built from it."""

from fedfeast.recipes.recipe import Recipe as Recipe
from fedfeast.recipes.recipe import load_recipe as load_recipe
from fedfeast.recipes.recipe import packaged_recipes as packaged_recipes
