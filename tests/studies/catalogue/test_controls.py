"""Controls: what each changes, and all of them trained on the digits for a round."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tiny import TINY

from fedfeast.planning.outline import outline
from fedfeast.recipes import Recipe, load_recipe
from fedfeast.studies import StudyOptions, conclude_study, plan_study, train_study
from fedfeast.studies.catalogue.controls import (
    BACKBONES,
    CACHE_SEARCH,
    CONTROLS,
    DISTILLATION,
    LOCAL_EPOCHS,
    PRESETS,
    WEIGHTING,
)
from fedfeast.studies.results import Results
from fedfeast.studies.running import folder_name
from fedfeast.studies.study import LETTER, Study

MakeUp = Callable[..., Results]
SETTINGS = {
    "training.clients_per_round": 2,
    "training.batch_size": 64,
    "data.validation_examples": 40,
    "data.calibration_examples": 20,
}


def resolve(settings: Mapping[str, Any]) -> Recipe:
    return load_recipe("cifar100-paper", settings)


def recipes_of(study: Study) -> dict[str, Recipe]:
    return {arm.name: resolve(arm.settings) for arm in study.arms(resolve)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one folder of runs: what several controls need is trained once."""
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("study", CONTROLS, ids=lambda one: one.name)
def test_every_arm_trains_and_a_finished_study_trains_nothing(study: Study, runs: Path, tmp_path: Path) -> None:
    rounds = 2 if study is LOCAL_EPOCHS else 1  # fewer rounds of more epochs are another run
    tiny = TINY if study in (WEIGHTING, LOCAL_EPOCHS, DISTILLATION) else {}  # the others have networks of their own
    options = StudyOptions("digits", rounds, settings={**tiny, **SETTINGS}, runs=runs)
    plan = plan_study(study, tmp_path / study.name, options)
    train_study(plan)
    summaries = [runs / folder_name(run.recipe) / "summary.json" for run in plan.runs]
    assert len(set(summaries)) == len(plan.runs), "every arm has a run of its own"
    finished = [summary.stat().st_mtime_ns for summary in summaries]
    train_study(plan)
    assert [summary.stat().st_mtime_ns for summary in summaries] == finished
    anchors, scores, pairs = conclude_study(plan).findings.tables
    assert len(pairs.rows) == len(plan.runs) - 1
    assert len(anchors.rows) == len(scores.rows) == len(plan.runs) >= 2
    assert all(cell.ours is not None for row in scores.rows for cell in row.cells)
    compute = scores.rows[0].cells[2].ours
    assert compute is not None
    assert compute.mean == 1, "the first is what compute is measured by"


def test_answers_count_alike_for_every_method() -> None:
    recipes = recipes_of(WEIGHTING)
    assert recipes["feast, one vote a client"].aggregation.weigh == "alike"
    for method in ("heterofl", "scalefl", "fiarse"):
        assert recipes[method].settings()["method.weighting"] == "samples"
        assert recipes[f"{method}, one vote a client"].settings()["method.weighting"] == "count"


def test_more_epochs_have_as_many_rounds_or_as_much_compute() -> None:
    recipes = recipes_of(LOCAL_EPOCHS)
    assert [one.training.local_epochs for name, one in recipes.items() if name.startswith("fiarse")] == [1, 2, 5]
    assert recipes["feast, 5 local epochs"].training.rounds == 4000
    equal = recipes["feast, 5 local epochs, equal compute"].training
    assert (equal.local_epochs, equal.rounds) == (5, 800)


def test_share_and_temperature_are_varied_one_at_a_time() -> None:
    options = [recipe.settings() for recipe in recipes_of(DISTILLATION).values()]
    pairs = [(one["method.distillation_share"], one["method.temperature"]) for one in options]
    assert pairs == [(0.0, 1.0), (0.25, 1.0), (0.5, 1.0), (0.75, 1.0), (1.0, 1.0), (0.5, 2.0), (0.5, 4.0)]


@pytest.mark.parametrize("recipe", ["cifar100-paper", "digits"])
def test_a_random_cache_costs_what_the_searched_one_does(recipe: str) -> None:
    searched, drawn = (
        outline(load_recipe(recipe, arm.settings)).cache
        for arm in CACHE_SEARCH.arms(lambda settings: load_recipe(recipe, settings))
    )
    assert len(searched) == len(drawn)
    for one, other in zip(searched, drawn, strict=True):
        assert 0.95 * one.macs <= other.macs <= one.macs
    assert sum(one.architecture == other.architecture for one, other in zip(searched, drawn, strict=True)) <= 2


def test_presets_stand_beside_our_defaults() -> None:
    assert LETTER not in PRESETS.datasets, "there the authors' settings are the defaults"
    recipes = {name: recipe.settings() for name, recipe in recipes_of(PRESETS).items()}
    assert recipes["heterofl"]["method.scaler"] == "none"
    theirs = recipes["heterofl, as the authors ran it"]
    assert (theirs["method.scaler"], theirs["method.nominal_macs"]) == ("after-activation", 550e6)
    assert recipes["fiarse, as the authors ran it"]["method.learning_rate"] == 0.05
    digits = {arm.name: arm.settings for arm in PRESETS.arms(lambda settings: load_recipe("digits", settings))}
    assert digits["heterofl, as the authors ran it"]["method.nominal_macs"] is None, "nominal costs of ResNet-18"


def test_backbones_are_exchanged_and_only_what_must_be_leaves_clients_out() -> None:
    recipes = recipes_of(BACKBONES)
    assert all(recipe.population.below_smallest == "error" for recipe in recipes.values())
    points = {name: outline(recipe).method.operating_points() for name, recipe in recipes.items()}
    assert [point.macs for point in points["fedavg, on the ResNet"]] == [points["heterofl"][-1].macs]
    largest = points["feast"][-1].macs
    for method in ("heterofl", "fedrolex", "fjord"):
        assert points[f"{method}, on the supernet's network"][-1].macs == largest
    assert [point.macs for point in points["feast, on the ResNet, HeteroFL's widths"]] == [
        point.macs for point in points["heterofl"]
    ]
    digits = {arm.name: arm.settings for arm in BACKBONES.arms(lambda settings: load_recipe("digits", settings))}
    assert digits["heterofl, on the supernet's network"]["population.below_smallest"] == "exclude"
    assert "population.below_smallest" not in digits["heterofl"]


def test_the_papers_feast_stands_beside_ours(make_up: MakeUp) -> None:
    findings = DISTILLATION.conclude(make_up(DISTILLATION))
    papers = {row.label: [cell.paper for cell in row.cells][:5] for row in findings.tables[0].rows}
    assert papers["FEAST, share 0.5"] == [64.89, 65.60, 71.82, 71.94, 71.06]
    assert papers["FEAST, temperature 2"] == [None] * 5
    assert [len(line.published) for line in findings.plots[0].lines].count(5) == 1
