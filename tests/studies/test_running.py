import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedfeast.errors import InvalidInput
from fedfeast.recipes import load_recipe
from fedfeast.runs import Interrupted, Run
from fedfeast.studies import (
    RunProgress,
    StudyOptions,
    StudyResult,
    conclude_study,
    plan_study,
    train_study,
)
from fedfeast.studies.arms import Arm, method_arm
from fedfeast.studies.catalogue.digits import DIGITS
from fedfeast.studies.catalogue.rules import TRAINING_RULES
from fedfeast.studies.entry import study
from fedfeast.studies.running import SilentStudy, folder_name
from fedfeast.studies.study import Study

SETTINGS = {"training.clients_per_round": 2, "evaluation.every_rounds": 1, "checkpoint.every_rounds": 1}
OPTIONS = StudyOptions("digits", 2, settings=SETTINGS)
SMALL = replace(DIGITS, arms=lambda resolve: (method_arm("fedavg"), method_arm("feast")))


class Log(SilentStudy):
    """Remembers the runs; stops in a round of one of them if asked to."""

    def __init__(self, stop_in: int = 0) -> None:
        self.runs: list[tuple[int, int, str, bool]] = []
        self.shared: list[str] = []
        self.progress: list[tuple[RunProgress, ...]] = []
        self._stop_in = stop_in

    def on_run(self, number: int, total: int, name: str, reused: bool) -> None:
        self.runs.append((number, total, name, reused))

    def on_device_shared(self, sentence: str) -> None:
        self.shared.append(sentence)

    def on_progress(self, runs: Sequence[RunProgress]) -> None:
        self.progress.append(tuple(runs))

    def on_round(self, row: dict[str, Any]) -> None:
        if len(self.runs) == self._stop_in:
            raise KeyboardInterrupt


def run(folder: Path, options: StudyOptions = OPTIONS, study: Study = SMALL, log: Log | None = None) -> StudyResult:
    plan = plan_study(study, folder, options)
    train_study(plan, log)
    return conclude_study(plan)


def scores(result: StudyResult) -> list[float]:
    return [outcome.score for outcome in result.results.outcomes]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StudyResult]:
    folder = tmp_path_factory.mktemp("studies") / "small"
    return folder, run(folder)


def test_a_stopped_study_goes_on_and_ends_like_an_unbroken_one(
    unbroken: tuple[Path, StudyResult], tmp_path: Path
) -> None:
    with pytest.raises(Interrupted, match="after round 1"):
        run(tmp_path / "small", log=Log(stop_in=2))
    again = Log()
    result = run(tmp_path / "small", log=again)
    assert again.runs == [(1, 2, "FedAvg, seed 0", True), (2, 2, "FEAST, seed 0", False)]
    assert scores(result) == scores(unbroken[1])


def test_finished_runs_are_reused_by_another_study_beside_it(unbroken: tuple[Path, StudyResult]) -> None:
    folder, result = unbroken
    full = replace(TRAINING_RULES, arms=lambda resolve: TRAINING_RULES.arms(resolve)[-2:])
    log = Log()
    other = run(folder.parent / "rules", study=full, log=log)
    assert [reused for *_, reused in log.runs] == [False, True]
    assert scores(other)[-1] == scores(result)[-1]


def test_several_seeds_go_into_the_same_folder(unbroken: tuple[Path, StudyResult]) -> None:
    folder, result = unbroken
    only = replace(SMALL, arms=lambda resolve: (method_arm("fedavg"),))
    log = Log()
    both = run(folder, replace(OPTIONS, seeds=(0, 1)), only, log)
    assert [reused for *_, reused in log.runs] == [True, False]
    (table,) = both.findings.tables
    estimate = table.rows[0].cells[0].ours
    assert estimate is not None
    assert estimate.count == 2
    assert estimate.mean == pytest.approx(sum(scores(both)) / 2)
    assert scores(both)[0] == scores(result)[0]


def test_trackers_are_told_of_every_run_that_is_trained(tmp_path: Path) -> None:
    only = replace(SMALL, arms=lambda resolve: (method_arm("fedavg"),))
    options = replace(OPTIONS, rounds=1, track=["tensorboard"])
    run(tmp_path / "small", options, only)
    train_study(plan_study(only, tmp_path / "small", replace(options, seeds=(0, 1))), at_once=2)
    told = [json.loads(file.read_text()) for file in (tmp_path / "runs").glob("*/tracking/tensorboard.json")]
    assert [one["rounds"] for one in told] == [1, 1]
    assert len(list((tmp_path / "runs").glob("*/report.html"))) == 2
    with pytest.raises(InvalidInput, match="--track 'paper' is no tracker"):
        replace(options, track=["paper"])


def test_a_folder_of_another_study_is_refused(unbroken: tuple[Path, StudyResult], tmp_path: Path) -> None:
    folder, _ = unbroken
    with pytest.raises(InvalidInput, match="study is 'digits-all' there and 'table2-training-rules' here"):
        run(folder, study=TRAINING_RULES)
    with pytest.raises(InvalidInput, match="rounds is 2 there and 3 here"):
        run(folder, replace(OPTIONS, rounds=3))
    with pytest.raises(InvalidInput, match=r"--set training.batch_size is None there and 8 here"):
        run(folder, replace(OPTIONS, settings={**SETTINGS, "training.batch_size": 8}))
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="is a file: give a folder"):
        run(tmp_path / "file")
    with pytest.raises(InvalidInput, match="holds other files and no study"):
        run(tmp_path)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "study.json").write_text("{")
    with pytest.raises(InvalidInput, match="is damaged: delete it"):
        run(tmp_path / "damaged")


def test_a_run_whose_recipe_was_changed_is_refused_by_its_setting(tmp_path: Path) -> None:
    only = replace(SMALL, arms=lambda resolve: (method_arm("fedavg"),))
    run(tmp_path / "small", study=only)
    (folder,) = (tmp_path / "runs").iterdir()
    recipe = folder / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("gamma = 1.0", "gamma = 0.5"))
    with pytest.raises(InvalidInput, match=r"holds another run \(population.gamma is 0.5 there and 1.0 here\)"):
        run(tmp_path / "small", study=only)


def test_arms_that_disagree_in_protocol_are_refused_before_training(tmp_path: Path) -> None:
    arms: Sequence[Arm] = (method_arm("feast"), method_arm("fedavg", {"training.batch_size": 8}))
    with pytest.raises(InvalidInput, match=r"training.batch_size is 16 in the one and 8 in the other"):
        run(tmp_path / "small", study=replace(SMALL, arms=lambda resolve: arms))
    assert not any(tmp_path.iterdir())


def test_a_setting_that_every_arm_has_of_its_own_is_refused(tmp_path: Path) -> None:
    options = StudyOptions("digits", 2, settings=["method.rule=full"])
    with pytest.raises(InvalidInput, match=r"--set method.rule=... is what study table2-training-rules varies"):
        plan_study(TRAINING_RULES, tmp_path, options)


def test_folder_names_say_what_is_special_and_are_shared_by_equal_recipes_alone() -> None:
    plain = folder_name(load_recipe("digits"))
    assert plain.startswith("digits-feast-seed-0-")
    assert folder_name(load_recipe("digits", {"data.folder": "/elsewhere"})) == plain
    others: list[dict[str, Any]] = [
        {"population.gamma": 0.5},
        {"method.name": "fedavg"},
        {"method.rule": "min-max"},
        {"engine.threads": 2},
        {"seed": 1},
        {"training.rounds": 3},
    ]
    names = [folder_name(load_recipe("digits", settings)) for settings in others]
    assert len({plain, *names}) == 7
    starts = ("gamma-0.5-seed-0", "fedavg-seed-0", "rule-min-max-seed-0", "feast-seed-0", "feast-seed-1", "rounds-3")
    assert all(start in name for start, name in zip(starts, names, strict=True))


def test_a_study_by_its_name_is_planned_run_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = Log()
    result = study("communication", observer=log)
    assert result.plan.folder == Path("studies/communication")
    assert (tmp_path / "studies" / "communication" / "report.html").is_file()
    assert log.runs == []
    with pytest.raises(InvalidInput, match="unknown study 'communicate'"):
        study("communicate", tmp_path)


def weights(result: StudyResult) -> list[list[float]]:
    runs = [outcome.run for outcome in result.results.outcomes]
    states = [run.folder.checkpoints.load_latest()[0] for run in runs if run is not None]
    return [state.flat.tolist() for state in states if state is not None]


def test_runs_side_by_side_are_those_in_sequence_bit_for_bit(
    unbroken: tuple[Path, StudyResult], tmp_path: Path
) -> None:
    same = replace(method_arm("feast"), name="the same", label="the same")
    twice = (*SMALL.arms(lambda settings: load_recipe("digits", settings)), same)
    plan, log = plan_study(replace(SMALL, arms=lambda resolve: twice), tmp_path / "small", OPTIONS), Log()
    train_study(plan, log, at_once=5)
    result = conclude_study(plan)
    assert weights(result)[:2] == weights(unbroken[1])
    assert scores(result)[:2] == scores(unbroken[1])
    assert log.runs == [(1, 3, "FedAvg, seed 0", False), (2, 3, "FEAST, seed 0", False)], "equal arms are one run"
    assert [sentence.partition(" on ")[0] for sentence in log.shared] == ["2 runs side by side"]
    (fedavg, feast), told = log.progress[-1], {one.state for runs in log.progress for one in runs}
    assert (fedavg.state, feast.state, feast.finished_rounds, feast.total_rounds) == ("finished", "finished", 2, 2)
    last = Run.open(plan.runs_folder / folder_name(plan.runs[1].recipe)).folder.metrics()[-1]
    assert feast.validation_score == last["validation_score"]
    assert told <= {"starting", "training", "measuring", "finished"}
    again = Log()
    train_study(plan, again, at_once=2)
    assert [reused for *_, reused in again.runs] == [True, True]
    assert (again.shared, again.progress) == ([], [])


@pytest.mark.parametrize(
    ("at_once", "mps", "sentence"),
    [
        (0, None, "--at-once 0: give at least 1"),
        (1, True, "--mps is for runs that share a device: add --at-once 2 or more"),
        (1, False, "--no-mps is for runs that share a device"),
        (2, True, "--mps is for CUDA devices, and these runs are on the CPU"),
        (
            3,
            None,
            r"--at-once 3 is more than fits: .*, seed 0 takes at least 0.4\d GiB, and 0.60 GiB .*: give at most 1",
        ),
    ],
)
def test_what_cannot_run_side_by_side_is_refused_before_anything_starts(
    at_once: int, mps: bool | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDFEAST_DEVICE_MEMORY_GIB", "0.6")
    with pytest.raises(InvalidInput, match=sentence):
        train_study(plan_study(SMALL, tmp_path / "small", OPTIONS), None, at_once, mps)
    assert not any(tmp_path.iterdir())


@pytest.mark.gpu
def test_runs_that_share_a_gpu_are_those_in_sequence_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(OPTIONS, settings={**SETTINGS, "engine.device": "cuda"})
    sequence, log = run(tmp_path / "sequence" / "small", options), Log()
    plan = plan_study(SMALL, tmp_path / "at-once" / "small", options)
    train_study(plan, log, at_once=2)
    assert log.shared[0].startswith("2 runs side by side on the GPU, ")
    assert weights(conclude_study(plan)) == weights(sequence)
    monkeypatch.setenv("FEDFEAST_DEVICE_MEMORY_GIB", "0.7")
    with pytest.raises(InvalidInput, match=r"--at-once 2 is more than fits: .* GiB may be used on the GPU"):
        train_study(plan_study(SMALL, tmp_path / "less" / "small", options), None, at_once=2)
