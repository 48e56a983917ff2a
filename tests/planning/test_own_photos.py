from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.planning.own_photos import is_photo_folder, recipe_for_photos
from fedfeast.recipes import load_recipe


def test_a_folder_stands_for_a_recipe_unless_a_shipped_one_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("digits", "photos", "run"):
        (tmp_path / name).mkdir()
    assert is_photo_folder("photos")
    assert is_photo_folder(tmp_path / "photos")
    assert not is_photo_folder("digits")
    assert not is_photo_folder("absent")
    assert not is_photo_folder(load_recipe("digits"))
    (tmp_path / "run" / "recipe.toml").touch()
    with pytest.raises(InvalidInput, match=r"run is a run's folder: to go on with it, give run/recipe.toml --out run"):
        is_photo_folder("run")


def test_the_photos_are_the_data(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"data\.name is set as well"):
        recipe_for_photos(tmp_path, {"data.name": "mine"})
