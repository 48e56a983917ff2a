"""What will happen: a federation before it starts."""

from fedfeast.planning.plan import plan_recipe as plan_recipe
from fedfeast.planning.searching import search_recipe as search_recipe
