"""What every test needs: Triton's interpreter without a GPU, and a place of its own to remember trusted code."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from fedfeast.own_code import _Permissions

if not torch.cuda.is_available():  # here, because any test may import Triton
    os.environ["TRITON_INTERPRET"] = "1"

LONGEST = "test_fleet_failures.py"  # minutes, most of them spent waiting


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no process waits for it at the end."""
    items.sort(key=lambda item: item.path.name != LONGEST)


@pytest.fixture(scope="session", autouse=True)
def memory_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test, nor a process that one starts, writes to the home folder."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("FEDFEAST_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets what this process has trusted, as the next one would not know it."""
    return lambda: monkeypatch.setattr("fedfeast.own_code._PERMISSIONS", _Permissions())


@pytest.fixture
def another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_process: Callable[[], None]) -> None:
    """A machine that has not trusted anything yet."""
    monkeypatch.setenv("FEDFEAST_HOME", str(tmp_path / "another-home"))
    new_process()
