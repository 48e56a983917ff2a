"""Runs that were never trained: charts are checked on numbers that a reader can check too."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.folder import RunFolder

MakeUpRun = Callable[..., Run]


@pytest.fixture
def make_up_run(tmp_path: Path) -> MakeUpRun:
    """Return a run of three clients, two variants and two rounds, by its name and its recipe's."""

    def run(name: str, recipe: str = "digits") -> Run:
        made = RunFolder.create(tmp_path / name, load_recipe(recipe), threads=1, device="cpu")
        shares = {"target_share": [0.6, 0.1, 0.3], "realized_share": [0.6, 0.2, 0.2]}
        made.write_clients({"name": ["a", "b", "c"], "budget_macs": [9000.0, 500.0, 1500.0], **shares})
        points = (CurvePoint("1k", 1000, 1, 0.5), CurvePoint("2k", 2000, 2, 0.75))
        made.write_summary({"finished_rounds": 2}, Curve(points))
        made.append_metrics({"round": 1, "losses": {"teacher": 2.0, "student": 1.0}})
        made.append_metrics({"round": 2, "losses": {"teacher": 1.0}, "validation_score": 0.4})
        return Run(made)

    return run
