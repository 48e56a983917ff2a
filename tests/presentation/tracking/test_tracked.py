import json
import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import fedfeast
from fedfeast.errors import InvalidInput
from fedfeast.presentation.tracking import tell_finished, tracked
from fedfeast.presentation.tracking.tracked import TrackedTraining
from fedfeast.presentation.tracking.tracker import Told, TrackedRun, round_numbers
from fedfeast.runs import Interrupted, Run
from fedfeast.runs.training import Silent

SHORT = {"training.rounds": 3, "training.clients_per_round": 2, "evaluation.every_rounds": 2}


class Notebook:
    """A tracker that remembers what it was told, and can fail."""

    name, where = "notebook", "here"

    def __init__(self, fails_at: int | None = None, opens: bool = True) -> None:
        self.lines: list[Any] = []
        self.told: dict[int, Mapping[str, float]] = {}
        self._fails_at, self._opens = fails_at, opens

    def open(self, run: TrackedRun, told: Told | None) -> Told:
        if not self._opens:
            raise ConnectionError("nobody answers\nat all")
        self.lines.append(("open", told))
        return told or Told("first", 0)

    def tell_round(self, round_number: int, values: Mapping[str, float]) -> None:
        if round_number == self._fails_at:
            raise OSError("the wire is cut")
        self.told[round_number] = values

    def tell_end(self, summary: Mapping[str, float], report: Path) -> None:
        self.lines.append(("end", report.name, summary["summary/finished_rounds"]))

    def close(self, finished: bool) -> None:
        self.lines.append(("close", finished))


class Stopping(Silent):
    """Stops training as Ctrl-C does."""

    def on_round(self, row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt


def train_with(run: Run, tracker: Notebook) -> None:
    training = TrackedTraining(run, [tracker], Silent())
    run.train(training)
    training.end_with_report()


def content(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run without times."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if "seconds" not in key} for row in rows]


def test_a_tracker_is_told_every_round_and_the_end(tmp_path: Path) -> None:
    run, tracker = Run.create("digits", tmp_path / "run", SHORT), Notebook()
    train_with(run, tracker)
    assert list(tracker.told) == [1, 2, 3]
    rows = run.folder.metrics()
    assert list(tracker.told.values()) == [round_numbers(row) for row in rows]
    assert tracker.told[2]["validation_score"] == rows[1]["validation_score"]
    assert tracker.told[1]["clients"] == 2
    assert tracker.lines == [("open", None), ("end", "report.html", 3), ("close", True)]
    kept = json.loads((tmp_path / "run" / "tracking" / "notebook.json").read_text())
    assert kept == {"where": "here", "identity": "first", "rounds": 3}


def test_a_tracker_that_fails_changes_nothing_and_is_warned_of_once(
    finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, tracker = Run.create("digits", tmp_path / "run", {**SHORT, "checkpoint.every_rounds": 1}), Notebook(fails_at=2)
    train_with(run, tracker)
    assert list(tracker.told) == [1]
    assert [line[0] for line in tracker.lines] == ["open"]
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == (
        f"--track notebook fails: the wire is cut; training goes on without it, and fedfeast report {run.folder.path} "
        "with the same --track tells it the rest"
    )
    assert content(tmp_path / "run") == content(finished)
    assert run.curve == Run.open(finished).curve
    again = Notebook()
    train_with(Run.open(tmp_path / "run"), again)
    assert list(again.told) == [2, 3], "what it has not been told"
    assert again.lines[0] == ("open", Told("first", 1))


def test_a_stopped_run_goes_on_as_the_same_tracked_run(tmp_path: Path) -> None:
    run, tracker = Run.create("digits", tmp_path / "run", {**SHORT, "checkpoint.every_rounds": 1}), Notebook()
    training = TrackedTraining(run, [tracker], Stopping())
    with pytest.raises(Interrupted):
        run.train(training)
    training.end(None, 10)
    assert tracker.lines[-1] == ("close", False)
    again = Notebook()
    train_with(Run.open(tmp_path / "run"), again)
    assert sorted([*tracker.told, *again.told]) == [1, 2, 3]
    assert again.lines[0] == ("open", Told("first", 1))


def test_what_cannot_be_opened_ends_a_run_only_before_it_has_begun(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = Run.create("digits", tmp_path / "new", SHORT)
    with pytest.raises(InvalidInput, match=r"--track notebook cannot be opened: nobody answers$"):
        new.train(TrackedTraining(new, [Notebook(opens=False)], Silent()))
    assert not new.folder.has_finished_rounds()
    train_with(run, Notebook(opens=False))
    assert "cannot be opened: nobody answers; training goes on without it" in caplog.text


def test_training_does_not_wait_for_a_tracker_that_hangs(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    released = threading.Event()

    class Hanging(Notebook):
        def tell_round(self, round_number: int, values: Mapping[str, float]) -> None:
            released.wait(60)

    training = TrackedTraining(run, [Hanging()], Silent())
    began = time.monotonic()
    run.train(training)
    training.end(None, 0.2)
    assert time.monotonic() - began < 30
    assert "it takes too long" in caplog.text
    released.set()


def test_a_damaged_note_or_another_destination_begins_anew(run: Run) -> None:
    note = run.folder.path / "tracking" / "notebook.json"
    note.parent.mkdir()
    for text in ("{", "[]", '{"where": "there", "identity": "other", "rounds": 2}'):
        note.write_text(text)
        tracker = Notebook()
        training = TrackedTraining(run, [tracker], Silent())
        training.begin(tracker, 3)
        training.end(None, 10)
        assert tracker.lines == [("open", None), ("close", False)]
        assert list(tracker.told) == [1, 2, 3]


def test_python_names_trackers_as_the_command_does(run: Run, tmp_path: Path) -> None:
    with fedfeast.tracked(run, [f"tensorboard={tmp_path / 'events'}"]) as observer:
        run.train(observer)
    assert list((tmp_path / "events" / "run").glob("events.*"))
    with pytest.raises(InvalidInput, match="is no tracker"), tracked(run, ["tensorbord"]):
        pass


def test_a_run_without_any_tracker_writes_nothing_more(run: Run) -> None:
    with tracked(run, []) as observer:
        run.train(observer)
    assert not (run.folder.path / "report.html").exists()
    assert not (run.folder.path / "tracking").exists()


def test_a_run_that_is_being_trained_is_left_alone(run: Run) -> None:
    with run.folder.locked(), pytest.raises(InvalidInput, match="another process is training"):
        tell_finished(run, ["tensorboard"])


def test_telling_a_finished_run_fails_in_one_sentence(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidInput, match="--track mlflow cannot be opened"):
        tell_finished(run, ["mlflow=nonsense://nowhere"])
    assert caplog.records == []
