"""Runs that were never trained: charts are checked on numbers that a reader can check too."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedfeast.data.tasks import Metric, task_named
from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.folder import RunFolder

MakeUpRun = Callable[..., Run]
BITS = task_named("next-token").metric


@pytest.fixture
def make_up_run(tmp_path: Path) -> MakeUpRun:
    """Return a run of three clients, two variants and two rounds, by its name and its recipe's."""

    def run(name: str, recipe: str = "digits") -> Run:
        made = RunFolder.create(tmp_path / name, load_recipe(recipe), threads=1, device="cpu")
        shares = {"num_examples": [6, 2, 2], "target_share": [0.6, 0.1, 0.3], "realized_share": [0.6, 0.2, 0.2]}
        made.write_clients({"name": ["a", "b", "c"], "budget_macs": [9000.0, 500.0, 1500.0], **shares})
        points = (CurvePoint("1k", 1000, 1, 0.5), CurvePoint("2k", 2000, 2, 0.75))
        made.write_summary({"finished_rounds": 2}, Curve(points))
        row = {"clients": [0], "payload_parameters": 1, "seconds": 0.5}
        made.append_metrics({**row, "round": 1, "losses": {"teacher": 2.0, "student": 1.0}})
        made.append_metrics({**row, "round": 2, "losses": {"teacher": 1.0}, "validation_score": 0.4})
        return Run(made)

    return run


class TextRun(Run):
    """A run that is judged by bits, whatever its recipe says."""

    @property
    def metric(self) -> Metric:
        return BITS


def curve_of_bits(*values: float) -> Curve:
    """Return a curve over text with standard errors."""
    points = (
        CurvePoint(f"{place}k", 1000 * place, place, bits, {"bits": bits, "accuracy": 0.4, "perplexity": 2**bits}, 0.1)
        for place, bits in enumerate(values, start=1)
    )
    return Curve(tuple(points), BITS, 6.0)


@pytest.fixture
def make_up_text_run(make_up_run: MakeUpRun) -> MakeUpRun:
    """Return the same run, or one that was trained, judged by bits and measured on the given number of test sets."""

    def run(name: str, sets: int = 0, trained: RunFolder | None = None) -> Run:
        made = trained or make_up_run(name).folder
        measured = {f"set {place}": curve_of_bits(3.0 + place, 2.0 + place) for place in range(sets)}
        facts = {name: {"clients": 5, "curve": one.rows()} for name, one in measured.items()}
        summary = {**made.summary(), "population_score": 4.0, **({"test_sets": facts} if facts else {})}
        made.write_summary(summary, curve_of_bits(3.0, 2.0))
        return TextRun(made)

    return run
