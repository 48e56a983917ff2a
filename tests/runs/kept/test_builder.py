from pathlib import Path

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.recipes import Recipe, load_recipe
from fedfeast.runs.kept.builder import KeptBuilder

SOURCE = """
from torch import nn
from fedfeast.networks.built import elastic


@elastic(width=[2, 4])
def tiny(width, *, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes))
"""


def recipe_of(folder: Path, source: str = SOURCE) -> Recipe:
    (folder / "mine.py").write_text(source)
    return load_recipe("digits", {"network.builder": f"{folder / 'mine.py'}:tiny", "variants.cache": "members"})


@pytest.fixture
def kept(tmp_path: Path) -> KeptBuilder:
    return KeptBuilder(tmp_path / "run" / "inputs" / "builder.json")


def test_another_builder_is_noticed(tmp_path: Path, kept: KeptBuilder) -> None:
    (tmp_path / "run").mkdir()
    recipe = recipe_of(tmp_path)
    kept.refuse_other(recipe)  # nothing is known of a run's builder before
    kept.keep(recipe)
    kept.refuse_other(recipe)
    changed = recipe_of(tmp_path, SOURCE.replace("ReLU", "GELU"))
    assert kept.is_other(changed)
    with pytest.raises(InvalidInput, match=r"mine.py:tiny' has changed since the run in .*run began: restore its file"):
        kept.refuse_other(changed)
    kept.keep(changed)
    assert not kept.is_other(changed)


def test_the_packages_own_networks_need_no_hash(tmp_path: Path, kept: KeptBuilder) -> None:
    (tmp_path / "run").mkdir()
    kept.keep(load_recipe("digits"))
    assert not (tmp_path / "run" / "inputs").exists()
    kept.refuse_other(load_recipe("digits"))


def test_a_damaged_file_is_said(tmp_path: Path, kept: KeptBuilder) -> None:
    (tmp_path / "run" / "inputs").mkdir(parents=True)
    (tmp_path / "run" / "inputs" / "builder.json").write_text("[]")
    with pytest.raises(InvalidInput, match=r"builder.json is damaged .*: delete it, or restore it"):
        kept.refuse_other(recipe_of(tmp_path))
