from pathlib import Path

import fedfeast
from fedfeast.server.answers import NoVariant, describe_run
from fedfeast.server.offer import NothingFits
from fedfeast.server.shown.watched_run import WatchedRun


def test_a_finished_run(trained: Path) -> None:
    told = describe_run(WatchedRun(trained, "digits"), ["digits"])
    assert (told.state, told.finished_rounds, told.total_rounds) == ("finished", 14, 14)
    assert (told.images.channels, told.images.side, told.images.classes) == (1, 8, 10)
    assert told.population_score == fedfeast.Run.open(trained).population_score
    assert told.population_score_best == fedfeast.Run.open(trained).population_score_best
    assert told.chosen_by == "mean over clients, each with the largest network it affords"
    assert told.validation_score is not None
    assert (told.clients, told.served_share) == (40, 1.0)
    assert told.remaining_seconds is None
    facts = {"name": "accuracy", "label": "accuracy", "more_is_better": True, "unit": "%"}
    assert told.metric.model_dump() == facts


def test_a_run_that_has_not_begun(tmp_path: Path) -> None:
    told = describe_run(WatchedRun(fedfeast.Run.create("digits", tmp_path / "run").folder.path, "run"), ["run"])
    assert (told.state, told.finished_rounds, told.total_rounds) == ("waiting", 0, 60)
    assert told.served_round is told.validation_score is told.population_score is told.clients is None
    assert told.population_score_best is None


def test_a_run_that_trains_says_how_long_it_will_take(folder: Path) -> None:
    recipe = folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("rounds = 14\n", "rounds = 28\n", 1))
    run = WatchedRun(folder, "run")
    with run.run.folder.locked():
        run.refresh()
    told = describe_run(run, ["run"])
    assert told.state == "training"
    assert told.remaining_seconds is not None
    assert abs(told.remaining_seconds - told.seconds) < 0.2


def test_the_least_budget_is_told() -> None:
    assert NoVariant.of(NothingFits("nothing.", 5, 7)).model_dump() == {
        "detail": "nothing.",
        "least_macs": 5,
        "least_parameters": 7,
    }
