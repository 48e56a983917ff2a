"""What simulated clients keep back of their examples, to evaluate on them."""

from dataclasses import replace

import numpy as np
import torch

from fedfeast.data import DatasetFacts
from fedfeast.population import Partition, Shards
from fedfeast.population.partition import group_by_client
from fedfeast.randomness import named_generator
from fedfeast.recipes.recipe import Recipe
from fedfeast.recipes.splitting import OwnedPlaces, keep_back


def keep_back_shards(recipe: Recipe, partition: Partition, split_off: OwnedPlaces) -> tuple[Partition, Shards]:
    """Return what the clients train on, and what they keep back: of the pool, or of what a split has kept already."""
    shards = partition.shards
    if split_off.owners is not None:  # the data's own clients
        kept = np.arange(len(split_off.owners), dtype=np.int64)
        return partition, group_by_client(kept, split_off.owners, len(shards))
    owners = np.repeat(np.arange(len(shards)), shards.sizes)
    chosen = keep_back(owners, recipe.evaluation.client_share, named_generator(recipe.seed, "kept back"))
    rest = group_by_client(np.delete(shards.order, chosen), np.delete(owners, chosen), len(shards))
    divided = replace(partition, shards=rest, realized_shares=rest.sizes / rest.sizes.sum())
    return divided, group_by_client(shards.order[chosen], owners[chosen], len(shards))


def input_dtype(facts: DatasetFacts) -> torch.dtype:
    """Return the type of examples as a client's are read, where those of the data set are not here."""
    return {"images": torch.uint8, "tokens": torch.int64}.get(facts.kind, torch.float32)


def blank_inputs(facts: DatasetFacts, device: torch.device) -> torch.Tensor:
    """Return two inputs of zeros, as networks take them."""
    dtype = torch.int64 if facts.kind == "tokens" else torch.float32
    return torch.zeros(2, *facts.input_shape, dtype=dtype, device=device)
