"""Draw the packaged random caches: for every row of a searched cache a random network of the same cost.

python benchmarks/scripts/random_cache.py digits digits-8-random.csv
python benchmarks/scripts/random_cache.py cifar100-paper cifar100-56-random.csv
"""

import sys
from pathlib import Path

from fedfeast.networks import ElasticResNet
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_cache, build_network
from fedfeast.variants import draw_cache, write_cache


def main(recipe_name: str, out: str) -> None:
    """Write the cache; seed 0 for ever, since a packaged cache never changes."""
    recipe = load_recipe(recipe_name)
    network = build_network(recipe)
    assert isinstance(network, ElasticResNet)
    costs = [variant.macs for variant in build_cache(recipe, network)]
    write_cache(draw_cache(network, costs, named_generator(0, "random cache")), network, Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
