"""The recipes that ship with the package, with what each trains on."""

import tomllib
from typing import Any

from fedfeast.data import is_here
from fedfeast.recipes.recipe import packaged_recipes, read_recipe
from fedfeast.recipes.sections import PopulationSection, TrainingSection


def list_recipes() -> list[dict[str, Any]]:
    """Return each shipped recipe's name, sentence, data set and whether it is here, method, clients and rounds."""
    return [_describe(name) for name in packaged_recipes()]


def _describe(name: str) -> dict[str, Any]:
    text = read_recipe(name)
    table = tomllib.loads(text)
    training, population = (
        TrainingSection(**table.get("training", {})),
        PopulationSection(**table.get("population", {})),
    )
    method = table.get("method", {}).get("name", "feast")
    drawn = population.source != "data"
    return {
        "name": name,
        "summary": _first_sentence(text),
        "data": table["data"]["name"],
        "is_here": is_here(table["data"]["name"], None),
        "method": method,
        "clients": population.num_clients if drawn else None,  # the data's own
        "clients_per_round": training.clients_per_round,
        "rounds": training.rounds,
    }


def _first_sentence(text: str) -> str:
    """Return what a recipe's first line says of it, without the command that trains it."""
    first = text.partition("\n")[0]
    return first.removeprefix("#").partition(": fedfeast ")[0].strip().rstrip(".") + "."
