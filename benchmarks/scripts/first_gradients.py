"""How large gradients are where training begins: one step's summed gradient for clients of several budgets.

A client takes FEAST's first local step on noise images of no class in particular, with the recipe's networks and drawn
weights; printed are the norm of the summed gradient before it is clipped, and that of the largest pass alone with its
loss.
"""

import argparse
import json
from dataclasses import replace
from itertools import product
from math import inf

import torch

from fedfeast.data import Batch
from fedfeast.engines.eager import ClientSlot, train_client
from fedfeast.federation import Client
from fedfeast.methods.supernet.feast import Feast
from fedfeast.randomness import named_generator
from fedfeast.recipes import Recipe, load_recipe
from fedfeast.recipes.building import build_method, build_sgd


def first_step(recipe: Recipe, row: int, batch: Batch) -> dict[str, float]:
    """Return the summed gradient's norm and the largest pass's loss for a client that affords a row of the cache."""
    method, parts = build_method(recipe)
    assert isinstance(method, Feast)
    assignment = method.assign(Client(0, "one", parts.cache[row].price, len(batch.inputs)))
    slot, generator = ClientSlot(method, torch.float32, torch.device("cpu")), named_generator(0, "step")
    flat = method.network.initial_weights(named_generator(recipe.seed, "weights"))
    slot.load(assignment, assignment.slice_map.gather(flat))
    unclipped = replace(build_sgd(recipe, method), clip_norm=inf)
    losses = train_client(method, assignment, slot, [batch], unclipped, 0.0, generator)
    (largest, *_), *_ = losses.values()
    return {"gradient_norm": float(torch.linalg.vector_norm(slot.gradient)), "largest_loss": float(largest)}


def main() -> None:
    """Print a line for every branch, scale and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", nargs="?", default="cifar100-paper")
    parser.add_argument("--branches", nargs="+", default=["rectified", "signed"])
    parser.add_argument("--scales", type=float, nargs="+", default=[1.0, 0.4, 0.2, 0.1])
    parser.add_argument("--rows", type=int, nargs="+", default=[-1, -4, -8, 22, 0], help="of the cache")
    parser.add_argument("--rule", default="full", help="method.rule; local-max for the largest pass alone")
    parser.add_argument("--batch", type=int, default=64)
    chosen = parser.parse_args()
    facts = load_recipe(chosen.recipe).data.facts
    generator = named_generator(0, "noise")
    inputs = torch.from_numpy(generator.normal(size=(chosen.batch, facts.channels, facts.side, facts.side))).float()
    labels = torch.from_numpy(generator.integers(0, facts.classes, chosen.batch))
    batch = Batch(inputs, labels, labels, torch.ones(()))
    for branch, scale in product(chosen.branches, chosen.scales):
        settings = {"network.branch": branch, "network.branch_scale": scale, "method.rule": chosen.rule}
        recipe = load_recipe(chosen.recipe, settings)
        for row in chosen.rows:
            found = first_step(recipe, row, batch)
            print(json.dumps({"branch": branch, "branch_scale": scale, "row": row, **found}), flush=True)


if __name__ == "__main__":
    main()
