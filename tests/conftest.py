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
# Files that take ten seconds and more, the longest first; processes share them out in this order, a file each time.
# Fleets, which mostly wait, lie between files that compute.
LONGEST = (
    "integration/test_fleet_failures.py",
    "integration/test_digits.py",
    "server/browser/test_page.py",
    "integration/test_fleet_equality.py",
    "studies/catalogue/test_digits.py",
    "engines/graphs/kernels/test_compiling.py",
    "integration/test_wheel.py",
    "engines/test_distributed.py",
    "server/browser/test_phone.py",
    "studies/catalogue/test_catalogue.py",
    "integration/test_compose.py",
    "flower/test_smaller_wire.py",
    "integration/test_at_once.py",
    "studies/catalogue/test_controls.py",
    "app/test_documented_commands.py",
    "integration/test_fleet_outsider.py",
    "engines/graphs/test_fused_layers.py",
    "flower/test_engine.py",
    "docs/test_notebooks.py",
    "server/browser/test_in_browser.py",
    "docs/test_site.py",
    "serving/phones/test_executorch.py",
    "integration/test_fleet_simulation.py",
    "engines/graphs/test_short_batches.py",
    "examples/test_examples.py",
    "integration/test_own_network.py",
    "integration/test_kill_and_resume.py",
    "engines/graphs/halo/test_convolution.py",
    "engines/graphs/test_engine.py",
    "variants/test_search.py",
    "server/test_damaged_files.py",
    "runs/test_buffered.py",
    "serving/families/test_traced.py",
    "integration/test_natural_recipes.py",
    "contract/test_method_contract.py",
    "studies/test_running.py",
    "app/test_data.py",
    "app/test_train.py",
    "app/test_studies.py",
    "integration/test_run_in_parts.py",
    "presentation/test_report.py",
    "engines/graphs/kernels/test_products.py",
    "planning/test_plan.py",
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
