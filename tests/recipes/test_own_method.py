"""The method of docs/add-a-method.md, as a user would run it."""

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TINY

import fedfeast
from fedfeast.engines import EagerEngine, GraphEngine, Precision
from fedfeast.errors import InvalidInput
from fedfeast.federation import LocalSgd, RoundOrder
from fedfeast.randomness import named_generator
from fedfeast.recipes import load_recipe
from fedfeast.recipes.recipe import code_named_by, parse_recipe
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


def test_a_recipe_that_names_it_runs_where_it_is_trusted_or_was_trained(
    method_name: str, tmp_path: Path, another_machine: None, new_process: Callable[[], None]
) -> None:
    recipe = tmp_path / "mine.toml"
    named = load_recipe("digits", {**TINY, "method.name": method_name, "training.rounds": 1})
    recipe.write_text(named.to_toml())
    assert load_recipe(str(recipe)) == named  # settings of this process named it
    new_process()
    with pytest.raises(InvalidInput, match=rf"recipe {recipe} names code to run, method\.name = .* not trusted"):
        load_recipe(str(recipe))
    fedfeast.trust(method_name)
    assert fedfeast.plan(recipe)["variants"]["count"] == 2
    new_process()
    with pytest.raises(InvalidInput, match="names code to run"):
        fedfeast.train(recipe, tmp_path / "run")  # a plan is no training
    assert not (tmp_path / "run").exists()
    fedfeast.trust(method_name)
    trained = fedfeast.train(recipe, tmp_path / "run")
    new_process()
    assert fedfeast.Run.open(tmp_path / "run").curve == trained.curve
    assert fedfeast.train(recipe, tmp_path / "run").summary == trained.summary


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"method": {"name": "CODE"}}, False),
        (["method.name=CODE"], False),
        (["method={name = 'CODE'}"], False),
        (["method.name=feast"], False),
        (["method.width=0.5"], True),
        ({"training.rounds": 1}, True),
    ],
)
def test_naming_it_is_setting_the_name(
    settings: Any, refused: bool, method_name: str, another_machine: None, new_process: Callable[[], None]
) -> None:
    text = 'name = "mine"\n[data]\nname = "digits"\n[method]\nname = ' + json.dumps(method_name)
    filled = json.loads(json.dumps(settings).replace("CODE", method_name))
    with pytest.raises(InvalidInput, match="names code") if refused else nullcontext():
        parse_recipe(text, "mine", filled)


def test_what_a_text_names_is_told_without_reading_it() -> None:
    assert code_named_by('[method]\nname = "gone.py:Mine"', "theirs") == {"method.name": "gone.py:Mine"}
    for text in ("", "method = 1", "[method]\nrule = 'full'", '[method]\nname = "feast"'):
        assert code_named_by(text, "theirs") == {}
    with pytest.raises(InvalidInput, match="recipe theirs is no valid TOML"):
        code_named_by("[", "theirs")
