"""What a node is by its --node-config: a name, a budget, examples; or a client of the recipe's own population."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from fedfeast.data import Examples
from fedfeast.errors import InvalidInput
from fedfeast.evaluation import ClientEvaluator
from fedfeast.federation import Method
from fedfeast.flower.own_data import load_own_data
from fedfeast.flower.terms import Terms, space_of
from fedfeast.own_code import trust
from fedfeast.randomness import named_generator
from fedfeast.recipes.building import build_method
from fedfeast.recipes.recipe import Recipe, code_named_by, load_recipe
from fedfeast.recipes.splitting import keep_back
from fedfeast.runs.assembly import assemble

KEYS = (
    *("name", "budget-macs", "data", "data-folder", "recipe", "method", "builder", "threads"),
    *("most-clip-norm", "least-noise-multiplier", "state-folder", "partition-id", "num-partitions"),
)
# By which key a node allows code that the recipe's setting names; other code of a recipe is the server's alone.
ALLOWED_BY = {"method.name": "method", "network.builder": "builder"}


@dataclass(frozen=True, eq=False)
class Node:
    """A client as it sees itself."""

    name: str
    budget_macs: float
    examples: Examples
    kept_back: Examples  # for evaluations; empty where the server evaluates
    settings: Mapping[str, Any] = field(default_factory=dict)  # that the server's recipe is opened with here

    @property
    def held_classes(self) -> tuple[int, ...]:
        """The classes that its examples have, sorted."""
        return tuple(torch.unique(self.examples.labels).tolist())


def read_node(terms: Terms, node_config: Mapping[str, Any]) -> Node:
    """Return the client that a node's settings make of it; what is missing is said with its remedy."""
    unknown = [key for key in node_config if key not in KEYS]
    if unknown:
        raise InvalidInput(f"--node-config has the unknown key {unknown[0]!r}: the keys are {', '.join(KEYS)}.")
    _allow_own_code(terms, node_config)
    if "partition-id" in node_config:
        return _simulated(terms, node_config)
    if not str(node_config.get("name", "")).strip():
        raise InvalidInput('it has no name: start it with --node-config \'name="..." budget-macs=... data="..."\'.')
    if "budget-macs" not in node_config:
        raise InvalidInput("it has no budget: add budget-macs=... to --node-config; fedfeast measure suggests one.")
    if "data" not in node_config:
        raise InvalidInput('it has no data: add data="FOLDER" or data="file.py:function" to --node-config.')
    examples = load_own_data(str(node_config["data"]), terms.facts, terms.class_names)
    name, budget = str(node_config["name"]).strip(), _budget(node_config["budget-macs"])
    settings = _own_settings(terms)
    with terms.opened(settings) as recipe:
        training, kept_back = _keep_back(examples, recipe, name)
    return Node(name, budget, training, kept_back, settings)


def require_consent(recipe: Recipe, method: Method, node_config: Mapping[str, Any]) -> None:
    """Refuse terms that the node's own settings do not allow: another network than its recipe's, too little privacy."""
    if "recipe" in node_config:
        own = load_recipe(str(node_config["recipe"]))
        if space_of(method) != space_of(build_method(own)[0]):
            raise InvalidInput(f"the server's network is not that of its own recipe {own.name}: it does not train it.")
        least_noise = own.privacy.noise_multiplier if own.privacy.clip_norm else None
        _require_privacy(recipe, own.privacy.clip_norm, least_noise, trusts_server=own.privacy.mechanism == "central")
    _require_privacy(recipe, _number(node_config, "most-clip-norm"), _number(node_config, "least-noise-multiplier"))


def _require_privacy(
    recipe: Recipe, most_clip_norm: float | None, least_noise: float | None, trusts_server: bool = False
) -> None:
    """Refuse terms with a larger clip norm or less noise than the node insists on, or with no privacy at all."""
    if most_clip_norm is None and least_noise is None:
        return
    asked, wanted = recipe.privacy, []
    if most_clip_norm is not None:
        wanted.append(f"privacy.clip_norm of at most {most_clip_norm:g}")
    if least_noise is not None:
        wanted.append(f"privacy.noise_multiplier of at least {least_noise:g}")
    insists = f"it insists on a {' and a '.join(wanted)}"
    if asked.clip_norm is None:
        raise InvalidInput(f"the server asks for updates without privacy, and {insists}: set them in the recipe.")
    if asked.mechanism == "central" and not trusts_server:
        raise InvalidInput(
            f"the server asks for updates to which it would add the noise itself, and {insists} of its own: set "
            "privacy.mechanism=local in the recipe."
        )
    too_loose = most_clip_norm is not None and asked.clip_norm > most_clip_norm
    too_little = least_noise is not None and asked.noise_multiplier < least_noise
    if too_loose or too_little:
        raise InvalidInput(
            f"the server asks for clip_norm = {asked.clip_norm:g} and noise_multiplier = {asked.noise_multiplier:g}, "
            f"and {insists}: set them in the recipe."
        )


def _number(node_config: Mapping[str, Any], key: str) -> float | None:
    if key not in node_config:
        return None
    try:
        number = float(node_config[key])
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise InvalidInput(f"its {key} is {node_config[key]!r}: give a positive number.")
    return number


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
    name, training = str(node_config.get("name", client.name)), federation.examples.of_client(index)
    kept_back = training.select(torch.empty(0, dtype=torch.int64))
    if isinstance(federation.validation, ClientEvaluator):
        mine = (one.kept_back.examples() for one in federation.validation.clients if one.name == client.name)
        kept_back = next(mine, kept_back)
    return Node(name, budget, training, kept_back, settings)


def _keep_back(examples: Examples, recipe: Recipe, name: str) -> tuple[Examples, Examples]:
    """Return what a node trains on and what it evaluates on: always the same ones of the same examples."""
    kept = np.empty(0, dtype=np.int64)
    if recipe.evaluation.by == "clients":
        generator = named_generator(recipe.seed, "kept back", name)
        kept = keep_back(np.zeros(len(examples), dtype=np.int64), recipe.evaluation.client_share, generator)
    rest = np.delete(np.arange(len(examples)), kept)
    return examples.select(torch.from_numpy(rest)), examples.select(torch.from_numpy(kept))


def _allow_own_code(terms: Terms, node_config: Mapping[str, Any]) -> None:
    """Let code that the terms name run where the node's own settings name it too: it is the node's file, none sent."""
    for setting, named in code_named_by(terms.recipe, "of the server").items():
        key = ALLOWED_BY.get(setting)
        if key is None:
            continue
        if node_config.get(key) == named:
            _trust_installed(named, key, setting)
        elif key in node_config or "partition-id" not in node_config:  # a simulated client has no settings of its own
            raise InvalidInput(
                f"the server's terms name code to run, {setting} = {named!r}, which this node does not allow: "
                f"have that file there, read it, and add {key}={json.dumps(named)} to --node-config."
            )


def _trust_installed(named: str, key: str, setting: str) -> None:
    try:
        trust(named, key)
    except InvalidInput as error:
        raise InvalidInput(
            f"the server's {setting} = {named!r} is not installed here ({str(error).rstrip('.')}): put the server's "
            "file there."
        ) from error


def _own_settings(terms: Terms) -> dict[str, Any]:
    """Return settings that spare a node with data of its own the code that loads the server's."""
    loader = code_named_by(terms.recipe, "of the server").get("data.name")
    return {} if loader is None else {"data.name": loader.rpartition(":")[2]}


def _refuse_fleet(recipe: Recipe) -> None:
    if recipe.population.source == "fleet":
        raise InvalidInput(
            "it has a partition-id, but the recipe's population is the fleet itself: "
            "give it name, budget-macs and data instead."
        )


def _budget(given: Any) -> float:
    budget = _number({"budget-macs": given}, "budget-macs")
    assert budget is not None
    return budget
