"""Where there is no GPU, kernels run through Triton's interpreter, chosen here because any test may import Triton."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

LONGEST = "test_fleet_failures.py"  # minutes, most of them spent waiting


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no process waits for it at the end."""
    items.sort(key=lambda item: item.path.name != LONGEST)
