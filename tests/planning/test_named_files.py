from pathlib import Path

import numpy as np
import pytest

from fedfeast.errors import InvalidInput
from fedfeast.planning.named_files import refuse_bad_files
from fedfeast.recipes import load_recipe


def test_a_recipe_without_files_is_not_looked_into() -> None:
    refuse_bad_files(load_recipe("digits", {"population.least_macs": 1.0}))  # training itself refuses it


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.csv")
    recipe = load_recipe("digits", {"population.source": "file", "population.file": missing})
    with pytest.raises(InvalidInput, match=f"Cannot read the population file {missing}"):
        refuse_bad_files(recipe)


def test_shards_of_another_population_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "shards.npz", indices=[0, 1], offsets=[0, 1, 2])
    settings = {"partition.file": str(tmp_path / "shards.npz"), "partition.unused": "leave"}
    with pytest.raises(InvalidInput, match=r"shards.npz has no examples of the client 'client-002'"):
        refuse_bad_files(load_recipe("digits", {**settings, "population.num_clients": 3}))
    refuse_bad_files(load_recipe("digits", {**settings, "population.num_clients": 2}))


def test_a_fleet_has_no_clients_yet_but_may_have_a_bad_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache.csv"
    cache.write_text("junk\n")
    fleet = {"population.source": "fleet"}
    refuse_bad_files(load_recipe("digits", fleet))
    with pytest.raises(InvalidInput, match="lacks the column macs"):
        refuse_bad_files(load_recipe("digits", {**fleet, "variants.cache": str(cache)}))
