"""The commands under ``fedfeast recipes``: which ship with the package, and what is in one."""

from typing import Annotated

import typer

from fedfeast.app.help import Commands
from fedfeast.app.options import JsonOption, RecipeArgument, SettingsOption, TrustOption
from fedfeast.app.output import print_result

recipes_app = typer.Typer(
    name="recipes",
    help="List the recipes that ship, and show what is in one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=Commands,
)


@recipes_app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """Show every shipped recipe: what it trains, on which data, and whether these are here."""
    from fedfeast.presentation.plan_tables import describe_recipes
    from fedfeast.recipes.recipe_list import list_recipes

    recipes = list_recipes()
    told = "fedfeast recipes show NAME prints one; fedfeast train NAME trains it."
    print_result(recipes, [*describe_recipes(recipes), told], as_json)


@recipes_app.command()
def show(
    recipe: RecipeArgument,
    every_field: Annotated[bool, typer.Option("--all", help="Every field, defaults included, not only those set.")] = (
        False
    ),
    settings: SettingsOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print a recipe as a TOML file to copy and change; with --all or --set as a run of it would keep it."""
    import tomllib

    from fedfeast.recipes.recipe import load_recipe, read_recipe

    text = load_recipe(recipe, settings or []).to_toml() if every_field or settings else read_recipe(recipe)
    print_result(tomllib.loads(text), [text.rstrip("\n")], as_json)
