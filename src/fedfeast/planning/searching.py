"""Build a cache for a recipe's own space."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfeast.networks import ElasticNetwork, ElasticResNet
from fedfeast.networks.built import BuiltNetwork
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_network, find_score, targets_of
from fedfeast.recipes.recipe import Recipe, resolve_recipe
from fedfeast.variants import Variant, VariantCache, choose_members, write_cache
from fedfeast.variants.search import Found, dominated, repeated, search_cache


@dataclass(frozen=True)
class SearchResult:
    """A searched cache: every target's winner, and which of them add nothing."""

    network: ElasticNetwork
    found: tuple[Found, ...]
    repeated: tuple[int, ...]  # positions whose network an earlier target has too
    dominated: tuple[int, ...]  # positions that a cheaper network equals or beats in fitness

    @property
    def distinct(self) -> tuple[Found, ...]:
        """The winners without repetitions, least MACs first."""
        kept = {one.macs: one for one in reversed(self.found)}
        return tuple(kept[macs] for macs in sorted(kept))

    def write(self, path: Path) -> None:
        """Write the distinct winners as a cache file."""
        rows = self.distinct
        cache = VariantCache.of([Variant.of(self.network, one.architecture) for one in rows])
        path.parent.mkdir(parents=True, exist_ok=True)
        further = {
            "fitness_score": [round(one.fitness, 3) for one in rows],
            "effectiveness": [round(one.effectiveness, 5) for one in rows],
            "entropy": [round(one.entropy, 3) for one in rows],
            "target": [one.target_macs for one in rows],
        }
        write_cache(cache, self.network, path, further)


def search_recipe(
    recipe: str | Path | Recipe,
    targets_macs: Sequence[float] | None = None,
    on_target: Callable[[Found], None] | None = None,
) -> SearchResult:
    """Search the fittest network of the recipe's space within every target; the recipe's seed decides the draws."""
    recipe = resolve_recipe(recipe)
    network: ElasticNetwork = build_network(recipe)
    if isinstance(network, BuiltNetwork):
        return search_members(network, recipe, targets_macs, on_target)
    assert isinstance(network, ElasticResNet)
    targets = list(targets_macs) if targets_macs is not None else list(targets_of(recipe))
    found = search_cache(network.space, targets, named_generator(recipe.seed, "search"), on_target=on_target)
    return SearchResult(network, found, tuple(repeated(found)), tuple(dominated(found)))


def search_members(
    network: BuiltNetwork,
    recipe: Recipe,
    targets_macs: Sequence[float] | None,
    on_target: Callable[[Found], None] | None,
) -> SearchResult:
    """Return the best member within each target, by the recipe's score or by parameters; without targets as trained."""
    generator, score = named_generator(recipe.seed, "search"), find_score(recipe)
    cache = choose_members(network, recipe.variants.num_targets, generator, score, targets_macs)
    fitness = (float(one.parameters if score is None else score(one.architecture)) for one in cache)
    found = tuple(
        Found(one.macs, one.architecture, one.macs, one.parameters, fit, 0.0, 0.0)
        for one, fit in zip(cache, fitness, strict=True)
    )
    if on_target is not None:
        for one in found:
            on_target(one)
    return SearchResult(network, found, (), ())
