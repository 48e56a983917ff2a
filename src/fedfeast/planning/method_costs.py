"""The methods side by side before training: what each sends, computes and serves under one recipe."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedfeast.errors import InvalidInput
from fedfeast.planning.outline import outline
from fedfeast.planning.plan import plan_compute, plan_traffic
from fedfeast.recipes import Recipe
from fedfeast.recipes.method_list import describe_methods
from fedfeast.recipes.recipe import resolve_recipe


def list_methods(
    recipe: str | Path | Recipe = "cifar100-paper", settings: Mapping[str, Any] | Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return each method's name, sentence, paper, options and operating points, and what it costs, for a recipe."""
    base = resolve_recipe(recipe, settings)
    return [{**one, **_costs(base, one["name"])} for one in describe_methods(base)]


def _costs(base: Recipe, name: str) -> dict[str, Any]:
    """Return what a method sends and computes with its default options, or why the recipe's clients cannot train it."""
    try:
        built = outline(resolve_recipe(base, {"method": {"name": name}}))
        traffic, compute = plan_traffic(built), plan_compute(built)
    except InvalidInput as refusal:
        return {"refused": str(refusal)}
    least, budgets = built.method.operating_points()[0].price, built.population.budgets_macs
    return {
        "costs": {
            "mean_payload_parameters": traffic["mean_payload_parameters"],
            "round_gigabytes": traffic["round_gigabytes"],
            "training_pmacs": compute["training_pmacs"],
            "training_clients": len(built.participants),
            "served_clients": int(np.sum(budgets >= least)),
            "clients": len(budgets),
        }
    }
