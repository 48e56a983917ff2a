"""What all tests share: kernels that run where there is no GPU, and the order in which files begin."""

import os
from pathlib import Path

import pytest
import torch

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
    "integration/test_digits.py",
    "studies/catalogue/test_digits.py",
    "integration/test_kill_and_resume.py",
    "flower/test_engine.py",
    "engines/graphs/kernels/test_compiling.py",
    "integration/test_wheel.py",
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
    "engines/graphs/test_fused_layers.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process waits for another at the end."""
    places = {HERE / name: place for place, name in enumerate(LONGEST)}
    assert all(path.is_file() for path in places), "a file of LONGEST has another name"
    items.sort(key=lambda item: places.get(item.path, len(places)))
