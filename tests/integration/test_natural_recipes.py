"""The recipes of data with clients of their own, in a few rounds on made-up data in the published form."""

import csv
from pathlib import Path
from typing import Any

import pytest
from made_up import prepare

import fedfeast

RECIPES = {"speech": "accuracy", "motion": "accuracy", "text": "bits"}
TINY: dict[str, Any] = {
    "training.rounds": 2,
    "training.clients_per_round": 2,
    "evaluation.every_rounds": 2,
    "data.validation_examples": 24,
    "data.calibration_examples": 12,
    "data.most_examples": 8,
}


@pytest.fixture(scope="module", params=RECIPES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> fedfeast.Run:
    recipe, folder = request.param, tmp_path_factory.mktemp(request.param)
    further = {} if recipe == "speech" else {"data.server_clients": 0.2}  # who names none of them has few here
    settings = {**TINY, **further, "data.name": prepare(recipe, folder), "data.folder": str(folder)}
    return fedfeast.train(recipe, folder / "run", settings)


def test_every_size_is_measured_on_both_test_sets(run: fedfeast.Run) -> None:
    summary = run.summary
    assert list(summary["test_sets"]) == ["held-out clients", "known clients"]
    for measured in summary["test_sets"].values():
        assert len(measured["curve"]) >= 5
        assert measured["clients"] >= 2
        assert all(point["standard_error"] is not None for point in measured["curve"])
    assert run.metric.name == RECIPES[run.recipe.name]
    assert summary["curve"] == summary["test_sets"]["held-out clients"]["curve"]
    assert summary["division"]["held_out"] == summary["test_sets"]["held-out clients"]["clients"]


def test_every_client_has_its_values(run: fedfeast.Run) -> None:
    with (run.folder.path / "test_clients.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["test_set", "client", *(point.name for point in run.curve.points)]
    values = run.folder.client_values()
    assert {row[0] for row in rows} == set(values) == {"held-out clients", "known clients"}
    trained = {row["name"] for row in run.folder.clients()}
    assert not trained & values["held-out clients"].keys()
    assert values["known clients"].keys() == trained
    own = [one.own_value for one in run.fairness.deciles]
    assert any(value is not None for value in own)
    assert run.summary["fairness"] == run.fairness.facts()


def test_evaluating_again_changes_nothing(run: fedfeast.Run) -> None:
    before = run.summary
    fedfeast.evaluate(run.folder.path)
    assert run.summary == before


def test_the_plan_knows_the_clients(run: fedfeast.Run) -> None:
    plan = fedfeast.plan(run.recipe)
    assert plan["variants"]["count"] == len(run.curve.points)
    assert plan["clients"]["division"] == run.summary["division"]
    assert plan["clients"]["count"] == run.summary["clients"]


def test_the_report_names_metric_and_test_sets(run: fedfeast.Run, tmp_path: Path) -> None:
    page, *_ = fedfeast.report([run], tmp_path / "report.html")
    text = page.read_text()
    for words in (run.metric.title, "held-out clients", "known clients"):
        assert words in text
