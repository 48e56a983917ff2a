"""One run from recipe to summary."""

from fedfeast.runs.plan import plan_recipe as plan_recipe
from fedfeast.runs.recipe import Recipe as Recipe
from fedfeast.runs.recipe import load_recipe as load_recipe
from fedfeast.runs.recipe import packaged_recipes as packaged_recipes
from fedfeast.runs.run import Interrupted as Interrupted
from fedfeast.runs.run import Run as Run
from fedfeast.runs.run import evaluate as evaluate
from fedfeast.runs.run import train as train
from fedfeast.runs.searching import search_recipe as search_recipe
from fedfeast.runs.training import Observer as Observer
