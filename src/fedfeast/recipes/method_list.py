"""The methods that a recipe can name, with what each would serve."""

from collections.abc import Mapping, Sequence
from inspect import getdoc
from pathlib import Path
from typing import Any

from fedfeast.federation import Method
from fedfeast.federation.parts import ANY_NETWORK
from fedfeast.methods import METHODS
from fedfeast.recipes.building import build_parts
from fedfeast.recipes.recipe import Recipe, resolve_recipe
from fedfeast.recipes.sections import method_section


def list_methods(
    recipe: str | Path | Recipe = "cifar100-paper", settings: Mapping[str, Any] | Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return each method's name, sentence, paper, options and operating points for a recipe's networks."""
    parts = build_parts(resolve_recipe(recipe, settings))
    names = METHODS if parts.resnet is not None else ANY_NETWORK
    return [_describe(name, METHODS[name].build(parts)) for name in names]


def _describe(name: str, method: Method) -> dict[str, Any]:
    options = method_section(name)().model_dump(mode="json", exclude={"name"})
    return {
        "name": name,
        "summary": (getdoc(method) or "").partition("\n")[0],
        "paper": method.paper,
        "keeps_budgets": method.keeps_budgets,
        "parameters": method.network.layout.num_parameters,
        "options": options,
        "presets": {preset: dict(values) for preset, values in method.presets.items()},
        "operating_points": [
            {"name": point.name, "macs": point.macs, "parameters": point.parameters}
            for point in method.operating_points()
        ],
    }
