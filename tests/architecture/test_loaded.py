"""What a program need not have in memory."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["fedfeast.presentation.pictures", "fedfeast.runs", "fedfeast.server.shown.watched_run"]
)
def test_training_drawing_and_serving_load_no_studies(module: str) -> None:
    code = f"import sys, {module}; print(sorted(name for name in sys.modules if name.startswith('fedfeast.studies')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_chart_is_described_without_what_draws_it() -> None:
    code = "import sys, fedfeast.presentation.chart; print(sorted({'matplotlib', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
