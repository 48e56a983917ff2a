"""The method of docs/add-a-method.md, as a user would run it."""

import re
from pathlib import Path

import pytest
import torch
from tiny import TINY

import fedfeast
from fedfeast.engines import EagerEngine, GraphEngine, Precision
from fedfeast.federation import LocalSgd, RoundOrder
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.runs.assembly import assemble

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"


@pytest.fixture
def method_name(tmp_path: Path) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 60
    (tmp_path / "narrow_or_whole.py").write_text(code)
    return f"{tmp_path / 'narrow_or_whole.py'}:NarrowOrWhole"


def test_it_trains_resumes_and_learns(method_name: str, tmp_path: Path) -> None:
    own = {"method.name": method_name, "method.width": 0.25}
    settings = {**TINY, **own, "training.batch_size": 16, "training.rounds": 20, "evaluation.every_rounds": 10}
    run = fedfeast.train("digits", tmp_path / "run", settings)
    narrow, whole = run.curve.points
    assert (narrow.name, whole.name) == ("narrow", "whole")
    assert whole.accuracy > 0.8
    assert fedfeast.train("digits", tmp_path / "run", settings).summary == run.summary
    assert fedfeast.plan("digits", settings)["variants"]["count"] == 2


def test_both_engines_agree(method_name: str) -> None:
    built = assemble(load_recipe("digits", {**TINY, "method.name": method_name}))
    cohort, flat = [built.clients[index] for index in built.participants[:3]], built.initial_weights().double()
    planned, _ = built.method.plan_round({}, flat, cohort, 0, named_generator(0))
    parts = (built.method, built.examples, built.preparation, LocalSgd(), 0)
    eager = EagerEngine(*parts, torch.float64, built.device).run_round(RoundOrder(flat, planned, 0, 0.1))
    graphs = GraphEngine(*parts, Precision(torch.float64, torch.float64), built.device).run_round(
        RoundOrder(flat, planned, 0, 0.1)
    )
    assert float((graphs.flat - eager.flat).norm() / (eager.flat - flat).norm()) < 1e-6
