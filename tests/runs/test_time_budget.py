import json
import time
from pathlib import Path

import pytest

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.time_budget import FILE, TimeLimit, measure_budget

SMALL = {"training.clients_per_round": 2, "data.validation_examples": 20, "data.calibration_examples": 20}


def test_rounds_fill_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfeast.runs.time_budget.LONGEST_TRIAL", 0.5)
    recipe = load_recipe("digits", SMALL)
    budget = measure_budget(recipe, TimeLimit(5))
    validations = -(-budget.rounds // budget.validate_every)
    spent = budget.seconds_before + budget.rounds * budget.seconds_per_round + budget.seconds_at_end
    assert spent + validations * budget.seconds_per_validation == pytest.approx(300, abs=1 + budget.seconds_per_round)
    assert validations <= 10
    assert budget.tried_rounds >= 2
    assert budget.settings()["training.rounds"] == budget.rounds
    assert budget.sentence().startswith(f"5 minutes: {budget.rounds} rounds of about ")
    late = measure_budget(recipe, TimeLimit(5, time.monotonic() - 1000))
    assert late.rounds > 1, "what went before takes half of the time at most"


def test_a_run_sized_by_time_goes_on_with_its_rounds(tmp_path: Path) -> None:
    class Stop:
        def on_start(self, *_: object) -> None: ...
        def on_evaluation(self, *_: object) -> None: ...
        def on_round(self, row: object) -> None:
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(fedfeast.runs.Interrupted):
        fedfeast.train("digits", out, SMALL, Stop(), minutes=0.12)
    kept = json.loads((out / FILE).read_text())
    with pytest.raises(InvalidInput, match=r"began with --minutes 0\.12"):
        Run.create("digits", out, SMALL, limit=TimeLimit(5))
    for limit in (TimeLimit(0.12), None):
        run = Run.create("digits", out, SMALL, limit=limit)
        assert run.recipe.training.rounds == kept["rounds"]
        assert run.time_budget is not None
    assert fedfeast.train("digits", out, SMALL, minutes=0.12).summary["finished_rounds"] == kept["rounds"]
    with pytest.raises(InvalidInput, match=r"holds another run \(training\.rounds"):
        Run.create("digits", out, {**SMALL, "training.rounds": kept["rounds"] + 1})


def test_what_does_not_go_with_a_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--minutes chooses training\.rounds, which is set as well"):
        Run.create("digits", tmp_path / "a", {"training.rounds": 3}, limit=TimeLimit(1))
    with pytest.raises(InvalidInput, match="--minutes 0: give a number above 0"):
        TimeLimit(0)
    fedfeast.train("digits", tmp_path / "b", {**SMALL, "training.rounds": 1})
    with pytest.raises(InvalidInput, match="began without --minutes"):
        Run.create("digits", tmp_path / "b", SMALL, limit=TimeLimit(1))
    (tmp_path / "b" / FILE).write_text("{")
    with pytest.raises(InvalidInput, match="is damaged"):
        _ = Run.open(tmp_path / "b").time_budget


def test_rounds_are_tried_until_somebody_trains_if_anybody_can() -> None:
    few = {**SMALL, "training.batch_size": 90, "training.least_distinct": 90}
    assert measure_budget(load_recipe("digits", few), TimeLimit(0.05)).rounds >= 1
    nobody = {**SMALL, "training.batch_size": 1000, "training.least_distinct": 1000}
    with pytest.raises(InvalidInput, match="no client has a batch to train on"):
        measure_budget(load_recipe("digits", nobody), TimeLimit(0.05))
