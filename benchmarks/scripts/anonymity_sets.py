"""How many clients of a round hold each region of positions: whom a secure sum could hide there. RECIPE SETTINGS..."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfeast.evaluation.slice_regions import cut_regions
from fedfeast.federation import sample_cohort
from fedfeast.methods import Feast
from fedfeast.planning.outline import outline
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe

LEAST = (2, 3, 5)  # holders below which a region might be withheld


def measure_anonymity(recipe: str, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Return how many clients of the recipe's own cohorts hold what, by region, round and position."""
    built = outline(load_recipe(recipe, settings))
    method, training = built.method, built.recipe.training
    assert isinstance(method, Feast), "regions are those of FEAST's envelopes"
    regions = cut_regions(method.network, method.cache)
    # Envelopes are nested: clients that afford a number of variants hold what fewer ones are sent, and more.
    levels = np.unique(regions.routed_from)
    parameters = np.array([regions.num_parameters[regions.routed_from == level].sum() for level in levels])
    affordable = np.searchsorted([one.price for one in method.cache], built.population.budgets_macs, "right")
    cohorts = [
        sample_cohort(
            built.participants, training.clients_per_round, named_generator(built.recipe.seed, "cohort", index)
        )
        for index in range(training.rounds)
    ]
    holders = np.array([(affordable[cohort][:, None] >= levels).sum(axis=0) for cohort in cohorts])  # (rounds, levels)
    clients = (affordable[list(built.participants)][:, None] >= levels).sum(axis=0)
    return {
        "recipe": built.recipe.name,
        "clients": len(built.participants),
        "clients_per_round": training.clients_per_round,
        "rounds": training.rounds,
        "regions": int((clients > 0).sum()),
        "holders_among_all_clients": {"least": int(clients[clients > 0].min()), "most": int(clients.max())},
        **_over_rounds(holders, parameters),
    }


def _over_rounds(holders: NDArray[np.int64], parameters: NDArray[np.int64]) -> dict[str, Any]:
    """Return the smallest sets of a round, the holders of a position that is sent at all, and what k would withhold."""
    smallest = np.where(holders > 0, holders, holders.max() + 1).min(axis=1)
    weights = np.where(holders > 0, parameters, 0).astype(np.float64)  # positions that a round sends to anybody
    order = np.argsort(holders, axis=None)
    reached = np.cumsum(weights.ravel()[order]) / weights.sum()
    percentiles = {f"{q}%": int(holders.ravel()[order][np.searchsorted(reached, q / 100)]) for q in (5, 25, 50, 75)}
    return {
        "smallest_set_of_a_round": {"median": float(np.median(smallest)), "most": int(smallest.max())},
        "rounds_with_a_region_held_by_one": float((smallest == 1).mean()),
        "holders_of_a_sent_position": percentiles,
        "sent_positions_below": {str(k): float((weights * (holders < k)).sum() / weights.sum()) for k in LEAST},
    }


if __name__ == "__main__":
    print(json.dumps(measure_anonymity(sys.argv[1], sys.argv[2:]), indent=2))
