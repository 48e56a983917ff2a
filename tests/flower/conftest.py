"""A fleet over a grid in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest
from flwr.supercore.task_identity import TaskIdentity
from local_grid import SMALL as SMALL
from local_grid import LocalGrid as LocalGrid
from local_grid import error_reply as error_reply

from fedfeast.flower.fleet import Fleet
from fedfeast.flower.server import fleet_recipe
from fedfeast.flower.terms import Terms
from fedfeast.flower.transport import Transport
from fedfeast.recipes import load_recipe
from fedfeast.recipes.building import build_method
from fedfeast.recipes.recipe import Recipe
from fedfeast.runs import Run
from fedfeast.runs.assembly import split_data


@pytest.fixture(autouse=True)
def inside_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages can be made only inside a Flower task; pretend to be in one."""
    monkeypatch.setattr(TaskIdentity, "_run_id", 1)
    monkeypatch.setattr(TaskIdentity, "_node_id", 1)
    monkeypatch.setattr(TaskIdentity, "_task_id", 1)


@pytest.fixture
def grid() -> LocalGrid:
    return LocalGrid({10 + index: {"partition-id": index, "num-partitions": 3} for index in range(3)})


@pytest.fixture
def make_fleet(tmp_path: Path) -> Callable[..., Fleet]:
    def make(grid: LocalGrid, *settings: str, recipe: Recipe | None = None) -> Fleet:
        base = recipe or load_recipe("digits", [*SMALL, *settings])
        run = Run.create(fleet_recipe(base), tmp_path / "run")
        method, _ = build_method(base)
        terms = Terms.of(base, method, split_data(base).normalisation, ())
        return Fleet(Transport(grid), run.folder, method, terms, base.fleet)

    return make
