"""What a node is by its --node-config: a name, a budget, examples; or a client of the recipe's own population."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fedfeast.data import Examples
from fedfeast.errors import InvalidInput
from fedfeast.flower.own_data import load_own_data
from fedfeast.flower.terms import Terms, space_of
from fedfeast.own_code import trust
from fedfeast.recipes.building import build_method
from fedfeast.recipes.recipe import Recipe, code_named_by, load_recipe
from fedfeast.runs.assembly import assemble

KEYS = (
    *("name", "budget-macs", "data", "data-folder", "recipe", "method", "threads"),
    *("partition-id", "num-partitions"),
)


@dataclass(frozen=True, eq=False)
class Node:
    """A client as it sees itself."""

    name: str
    budget_macs: float
    examples: Examples

    @property
    def held_classes(self) -> tuple[int, ...]:
        """The classes that its examples have, sorted."""
        return tuple(torch.unique(self.examples.labels).tolist())


def read_node(terms: Terms, node_config: Mapping[str, Any]) -> Node:
    """Return the client that a node's settings make of it; what is missing is said with its remedy."""
    unknown = [key for key in node_config if key not in KEYS]
    if unknown:
        raise InvalidInput(f"--node-config has the unknown key {unknown[0]!r}: the keys are {', '.join(KEYS)}.")
    _allow_own_method(terms, node_config)
    if "partition-id" in node_config:
        return _simulated(terms, node_config)
    if not str(node_config.get("name", "")).strip():
        raise InvalidInput('it has no name: start it with --node-config \'name="..." budget-macs=... data="..."\'.')
    if "budget-macs" not in node_config:
        raise InvalidInput("it has no budget: add budget-macs=... to --node-config; fedfeast measure suggests one.")
    if "data" not in node_config:
        raise InvalidInput('it has no data: add data="FOLDER" or data="file.py:function" to --node-config.')
    examples = load_own_data(str(node_config["data"]), terms.facts, terms.class_names)
    return Node(str(node_config["name"]).strip(), _budget(node_config["budget-macs"]), examples)


def own_space(node_config: Mapping[str, Any]) -> str | None:
    """Return the hash of the only network that a node consents to train; None where it takes what the server says."""
    if "recipe" not in node_config:
        return None
    return space_of(build_method(load_recipe(str(node_config["recipe"])))[0])


def _simulated(terms: Terms, node_config: Mapping[str, Any]) -> Node:
    """Return a client of the recipe's population, with its shard of the recipe's data."""
    settings = {"data.folder": node_config["data-folder"]} if "data-folder" in node_config else {}
    with terms.opened(settings) as recipe:
        _refuse_fleet(recipe)
        federation = assemble(recipe)
    index = int(node_config["partition-id"])
    if not 0 <= index < len(federation.clients):
        raise InvalidInput(
            f"partition-id = {index}, but the recipe's population has {len(federation.clients)} clients: "
            "give a smaller number, or set population.num_clients."
        )
    client = federation.clients[index]
    budget = _budget(node_config.get("budget-macs", client.budget_macs))
    return Node(str(node_config.get("name", client.name)), budget, federation.examples.of_client(index))


def _allow_own_method(terms: Terms, node_config: Mapping[str, Any]) -> None:
    """Let code that the terms name run where the node's own settings name it too: it is the node's file, none sent."""
    named = code_named_by(terms.recipe, "of the server")
    if named is None:
        return
    if node_config.get("method") == named:
        trust(named, "method")
    elif "method" in node_config or "partition-id" not in node_config:  # a simulated client has no settings of its own
        raise InvalidInput(
            f"the server's terms name code to run, method.name = {named!r}, which this node does not allow: "
            f"have that file there, read it, and add method={json.dumps(named)} to --node-config."
        )


def _refuse_fleet(recipe: Recipe) -> None:
    if recipe.population.source == "fleet":
        raise InvalidInput(
            "it has a partition-id, but the recipe's population is the fleet itself: "
            "give it name, budget-macs and data instead."
        )


def _budget(given: Any) -> float:
    try:
        budget = float(given)
    except (TypeError, ValueError):
        budget = math.nan
    if not (math.isfinite(budget) and budget > 0):
        raise InvalidInput(f"its budget-macs is {given!r}: give a positive number of MACs, e.g. 2.5e7.")
    return budget
