"""The methods that a recipe can name, with what each would serve."""

from inspect import getdoc
from typing import Any

from fedfeast.federation import Method
from fedfeast.federation.parts import ANY_NETWORK
from fedfeast.methods import METHODS
from fedfeast.recipes.building import build_parts
from fedfeast.recipes.recipe import Recipe
from fedfeast.recipes.sections import method_section


def describe_methods(recipe: Recipe) -> list[dict[str, Any]]:
    """Return each method's name, sentence, paper, options and operating points for a recipe's networks."""
    parts = build_parts(recipe)
    names = METHODS if parts.resnet is not None else ANY_NETWORK
    return [_describe(name, METHODS[name].build(parts)) for name in names]


def _describe(name: str, method: Method) -> dict[str, Any]:
    options = method_section(name)().model_dump(mode="json", exclude={"name"})
    return {
        "name": name,
        "summary": (getdoc(method) or "").partition("\n")[0],
        "paper": method.paper,
        "suits": method.suits,
        "keeps_budgets": method.keeps_budgets,
        "parameters": method.network.layout.num_parameters,
        "options": options,
        "presets": {preset: dict(values) for preset, values in method.presets.items()},
        "operating_points": [
            {"name": point.name, "macs": point.macs, "parameters": point.parameters}
            for point in method.operating_points()
        ],
    }
