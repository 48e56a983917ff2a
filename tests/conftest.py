"""What all tests share: kernels without a GPU, a place of their own to remember trusted code, the order of files."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from fedfeast.own_code import _Permissions

# Where there is no GPU, kernels run through Triton's interpreter, chosen here because any test may import Triton.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

HERE = Path(__file__).parent
# Files that take ten seconds and more, the longest first; two processes share them out in this order, a file each time.
LONGEST = (
    "integration/test_fleet_failures.py",
    "server/browser/test_page.py",
    "integration/test_fleet_equality.py",
    "engines/test_distributed.py",
    "integration/test_at_once.py",
    "integration/test_digits.py",
    "studies/catalogue/test_digits.py",
    "docs/test_notebooks.py",
    "examples/test_examples.py",
    "engines/graphs/halo/test_convolution.py",
    "integration/test_kill_and_resume.py",
    "engines/graphs/test_fused_layers.py",
    "flower/test_engine.py",
    "engines/graphs/kernels/test_compiling.py",
    "docs/test_site.py",
    "app/test_documented_commands.py",
    "integration/test_wheel.py",
    "integration/test_compose.py",
    "integration/test_natural_recipes.py",
    "app/test_data.py",
    "app/test_train.py",
    "engines/graphs/test_engine.py",
    "integration/test_fleet_simulation.py",
    "contract/test_method_contract.py",
    "app/test_studies.py",
    "presentation/test_report.py",
    "studies/catalogue/test_catalogue.py",
    "engines/graphs/kernels/test_products.py",
    "planning/test_plan.py",
    "variants/test_search.py",
    "server/browser/test_reports.py",
    "server/test_fuzz.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process waits for another at the end."""
    places = {HERE / name: place for place, name in enumerate(LONGEST)}
    assert all(path.is_file() for path in places), "a file of LONGEST has another name"
    items.sort(key=lambda item: places.get(item.path, len(places)))


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
