"""A folder of photos in the place of a recipe: the photos are prepared, and the recipe for small images takes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfeast.data import PreparedPhotos, prepare_photos
from fedfeast.data.reading.prepared import Progress
from fedfeast.errors import InvalidInput
from fedfeast.recipes.recipe import Recipe, packaged_recipes, pairs_of

PHOTO_RECIPE = "small-images"
PHOTO_MINUTES = 10.0  # where neither a time nor rounds are given


@dataclass(frozen=True)
class PhotoRecipe:
    """What stands for a folder of photos: a recipe's name, settings that come before the user's, and the data."""

    settings: dict[str, Any]
    photos: PreparedPhotos
    recipe: str = PHOTO_RECIPE


def is_photo_folder(recipe: str | Path | Recipe) -> bool:
    """Tell whether a folder is given where a recipe is expected; shipped names come first, a run's folder is none."""
    if isinstance(recipe, Recipe) or str(recipe) in packaged_recipes():
        return False
    folder = Path(recipe).expanduser()
    if (folder / "recipe.toml").is_file():
        raise InvalidInput(
            f"{recipe} is a run's folder: to go on with it, give {folder / 'recipe.toml'} --out {folder}."
        )
    return folder.is_dir()


def recipe_for_photos(
    folder: str | Path, settings: Mapping[str, Any] | Sequence[str] = (), on_progress: Progress | None = None
) -> PhotoRecipe:
    """Prepare a folder's photos, unless they are, and return the recipe that trains on them."""
    given = dict(pairs_of(settings))
    if "data" in given or "data.name" in given:
        raise InvalidInput(
            f"{folder} is a folder of photos, and data.name is set as well: "
            f"leave it out, or train {PHOTO_RECIPE} with it."
        )
    photos = Path(folder).expanduser()
    prepared = prepare_photos(photos, given.get("data.folder"), on_progress)
    name = photos.resolve().name or prepared.name
    return PhotoRecipe({"name": name, "data.name": prepared.name}, prepared)
