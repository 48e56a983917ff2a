from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedfeast.presentation.tracking.tensorboard import TensorBoardTracker, event_name, write_events
from fedfeast.presentation.tracking.tracker import Told, TrackedRun
from fedfeast.recipes import load_recipe
from fedfeast.runs import Run
from fedfeast.runs.folder import RunFolder

ROW = {"clients": [0], "payload_parameters": 1, "seconds": 0.5}


def test_the_history_becomes_events(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", load_recipe("digits"), threads=1, device="cpu")
    folder.append_metrics({**ROW, "round": 1, "learning_rate": 0.2, "losses": {"teacher": 1.5}})
    folder.append_metrics(
        {**ROW, "round": 2, "learning_rate": 0.1, "losses": {"teacher": 1.0}, "validation_score": 0.5}
    )
    scores: dict[str, object] = {"validation_score": 0.75, "validation_scores": {"global": 0.25, "average": 0.75}}
    scores["validation_sizes"] = [{"name": "1k", "macs": 1000, "value": 0.5}]
    folder.append_metrics({**ROW, "round": 3, "learning_rate": 0.1, "losses": {}, **scores})
    write_events([Run(folder)], tmp_path / "events")
    events = EventAccumulator(str(tmp_path / "events" / "run")).Reload()
    assert [(one.step, round(one.value, 3)) for one in events.Scalars("loss/teacher")] == [(1, 1.5), (2, 1.0)]
    assert [one.step for one in events.Scalars("validation population score")] == [2, 3]
    assert [one.value for one in events.Scalars("validation population score/global")] == [0.25]
    assert [(one.step, one.value) for one in events.Scalars("validation by size/1k")] == [(3, 0.5)]


def test_events_are_there_while_a_run_trains_and_repeated_rounds_replace_what_was_told(tmp_path: Path) -> None:
    events = tmp_path / "tensorboard"
    tracker = TensorBoardTracker()
    assert tracker.open(TrackedRun("run", tmp_path, {"seed": 0}, 0), None) == Told(str(events), 0)
    for number in (1, 2, 3):
        tracker.tell_round(number, {"losses/teacher": float(number), "learning_rate": 0.1})
    seen = EventAccumulator(str(events)).Reload()
    assert [one.step for one in seen.Scalars("loss/teacher")] == [1, 2, 3], "before it is closed"
    assert "recipe/text_summary" in seen.Tags()["tensors"]
    tracker.close(finished=False)
    again = TensorBoardTracker()
    assert again.open(TrackedRun("run", tmp_path, {}, 2), Told(str(events), 3)) == Told(str(events), 2)
    again.tell_round(3, {"losses/teacher": 7.0})
    again.tell_end({"summary/finished_rounds": 3.0, "summary/population_score": 0.5}, tmp_path / "report.html")
    again.close(finished=True)
    seen = EventAccumulator(str(events)).Reload()
    assert [(one.step, one.value) for one in seen.Scalars("loss/teacher")] == [(1, 1.0), (2, 2.0), (3, 7.0)]
    assert [one.step for one in seen.Scalars("summary/population_score")] == [3]


def test_a_folder_that_was_deleted_is_told_all_again(tmp_path: Path) -> None:
    told = TensorBoardTracker().open(TrackedRun("run", tmp_path, {}, 5), Told("", 5))
    assert told.rounds == 0


def test_names_of_events_are_those_of_the_first_release() -> None:
    names = ("losses/teacher", "learning_rate", "validation_score", "validation_scores/average", "seconds")
    assert [event_name(name) for name in names] == [
        "loss/teacher",
        "learning rate",
        "validation population score",
        "validation population score/average",
        "seconds",
    ]
