import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.runs import Interrupted
from fedfeast.studies import StudyOptions, StudyResult
from fedfeast.studies.choosing import LeftOut, Sized, plan_choice
from fedfeast.studies.report import describe_result, notes_of
from fedfeast.studies.running import TIMES_FILE, SilentStudy

SETTINGS = {
    "training.clients_per_round": 2,
    "data.calibration_examples": 20,
    "data.validation_examples": 20,
    "resnet.stage_channels": [64, 64, 128, 256],  # too large for FjORD's levels
}
OPTIONS = StudyOptions(settings=SETTINGS, arms=("fedavg", "nested", "fjord"))
SECONDS = 1.2


class Log(SilentStudy):
    """Remembers what it is told; stops in the first round of a run if asked to."""

    def __init__(self, stop_in: int = 0) -> None:
        self.runs: list[tuple[str, bool]] = []
        self.labels: list[str] = []
        self.left_out: list[str] = []
        self.trials: list[str] = []
        self.sized: list[Sized] = []
        self._stop_in = stop_in

    def on_run(self, number: int, total: int, name: str, reused: bool) -> None:
        self.runs.append((name, reused))

    def on_candidates(self, labels: Sequence[str], left_out: Sequence[LeftOut]) -> None:
        self.labels, self.left_out = list(labels), [one.name for one in left_out]

    def on_trial(self, number: int, total: int, label: str) -> None:
        self.trials.append(label)

    def on_sized(self, sized: Sequence[Sized], runs: int) -> None:
        self.sized = list(sized)

    def on_round(self, row: dict[str, Any]) -> None:
        if len(self.runs) == self._stop_in:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def stopped_and_done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Log, Log, StudyResult]:
    """A choice that was stopped in its second run, and gone on with by the same call."""
    folder, logs = tmp_path_factory.mktemp("studies") / "choose", (Log(stop_in=2), Log())
    with pytest.raises(Interrupted):
        fedfeast.choose("digits", SECONDS / 60, folder, OPTIONS, logs[0])
    return *logs, fedfeast.choose("digits", SECONDS / 60, folder, OPTIONS, logs[1])


def test_a_stopped_choice_goes_on_with_the_same_rounds(stopped_and_done: tuple[Log, Log, StudyResult]) -> None:
    first, again, result = stopped_and_done
    assert first.labels == again.labels == ["nested sampling", "FedAvg"]
    assert first.left_out == ["fjord"]
    assert first.trials == 3 * first.labels
    assert again.trials == [], "what rounds take is kept, and with it their number"
    assert [one.rounds for one in first.sized] == [one.rounds for one in again.sized]
    assert again.runs == [("nested sampling, seed 0", True), ("FedAvg, seed 0", False)]
    assert [one.recipe.training.rounds for one in result.results.outcomes] == [one.rounds for one in first.sized]


def test_every_candidate_has_the_rounds_that_fit_the_time(stopped_and_done: tuple[Log, Log, StudyResult]) -> None:
    first, *_ = stopped_and_done
    for one in first.sized:
        assert one.rounds * one.seconds_per_round <= SECONDS < (one.rounds + 1) * one.seconds_per_round
        recipe = one.candidate.recipe
        assert str(one).startswith(f"{one.candidate.arm.label} {one.rounds} round")
        assert recipe.evaluation.every_rounds <= recipe.training.rounds


def test_a_choice_ends_in_advice_a_table_and_pictures(stopped_and_done: tuple[Log, Log, StudyResult]) -> None:
    *_, result = stopped_and_done
    folder, facts = result.plan.folder, result.findings.facts
    assert facts["recommended"] in ("fedavg", "nested")
    assert facts["advice"][0].startswith("Take ")
    assert "below the smallest network's" in facts["left_out"]["fjord"]
    for one in facts["candidates"]:
        assert one["traffic_bytes"] > 0
        assert one["training_pmacs"] > 0
    table, pairs = result.findings.tables
    assert pairs.name == "pairs"
    assert sorted(row.label.removesuffix(" *") for row in table.rows) == ["FedAvg", "nested sampling"]
    assert [row.label.endswith(" *") for row in table.rows].count(True) == 1
    notes = notes_of(result)
    assert any(note.startswith("Left out: FjORD: client") for note in notes)
    assert any(note.startswith("One seed: ") for note in notes)
    page = (folder / "report.html").read_text()
    assert "as many rounds as fit 0.02 minutes here" in page
    for name in ("tables/choose.csv", "tables/choose.tex", "pictures/choose-traffic.png", "pictures/choose-curves.svg"):
        assert (folder / name).is_file(), name
    told = describe_result(result, [folder / "report.html"])
    assert json.loads(json.dumps(told))["recommended"] == facts["recommended"]


def test_the_same_rounds_instead_of_the_same_time_on_a_recipe_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    recipe = fedfeast.load_recipe("digits", {**SETTINGS, "name": "mine", "seed": 3})
    file.write_text(recipe.to_toml())
    options = StudyOptions(rounds=1, arms=("fedavg", "nested"), seeds=(3, 4))
    result = fedfeast.choose(file, out=tmp_path / "choice", options=options)
    assert {one.recipe.training.rounds for one in result.results.outcomes} == {1}
    assert result.results.base.name == "mine"
    assert result.findings.tables[0].seeds == 2
    notes = notes_of(result)
    assert "The order is that after 1 rounds each; a longer training may change it." in notes
    assert not any("One seed" in note for note in notes)


def test_by_default_the_folder_says_which_recipe_and_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = plan_choice("digits", None, options=replace(OPTIONS, rounds=2, arms=("fedavg",)))
    assert plan.folder == Path("studies") / "choose-digits-2-rounds"
    assert not any(tmp_path.iterdir())


def test_a_time_too_short_for_a_round_is_refused_and_takes_no_folder(tmp_path: Path) -> None:
    out, short = tmp_path / "choose", replace(OPTIONS, arms=("fedavg",))
    with pytest.raises(
        InvalidInput, match=r"--minutes 1e-07 is too short: a round of FedAvg takes .*; give at least 0"
    ):
        plan_choice("digits", 1e-7, out, short)
    assert [one.name for one in out.iterdir()] == [TIMES_FILE]
    (plan,) = plan_choice("digits", 1, out, short).runs
    assert plan.recipe.training.rounds > 1, "the same folder serves for a longer time"
    warm = replace(short, settings={**SETTINGS, "training.warmup_rounds": 3})
    (plan,) = plan_choice("digits", 0.1, tmp_path / "warm", warm).runs
    assert plan.recipe.training.warmup_rounds == 3, "what is set stays"
    recipe = fedfeast.load_recipe("digits", {**SETTINGS, "training.warmup_rounds": 30})
    (plan,) = plan_choice(recipe, 0.1, tmp_path / "scaled", replace(short, settings=())).runs
    assert plan.recipe.training.warmup_rounds == round(plan.recipe.training.rounds / 2)
    (out / TIMES_FILE).write_text("[")
    with pytest.raises(InvalidInput, match="is damaged: delete it, and rounds are tried anew"):
        plan_choice("digits", 1, out, short)


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    def refused(sentence: str, minutes: float | None, **options: Any) -> None:
        with pytest.raises(InvalidInput, match=sentence):
            plan_choice("digits", minutes, tmp_path / "choose", StudyOptions(**options))

    refused("--minutes 0: give a number above 0", 0)
    refused("--minutes 1 gives every candidate the same time, and --rounds 3 the same number of rounds", 1, rounds=3)
    refused("needs to know how long candidates train: give --minutes", None)
    refused("--dataset digits: study choose takes the data of its recipe", 1, dataset="digits")
    many = {"settings": {"training.clients_per_round": 99}, "arms": ("fedavg",)}
    refused("training.clients_per_round = 99 is more than the 40 clients", 1, **many)
    assert not any(tmp_path.iterdir())
    with pytest.raises(InvalidInput, match="study choose is about a recipe"):
        fedfeast.study("choose")
