"""Against Weights & Biases in its own offline mode, whose files its own reader opens."""

import json
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore

from fedfeast.presentation.tracking import tell_finished, tracked
from fedfeast.presentation.tracking.tracker import round_numbers
from fedfeast.runs import Run


def records(folder: Path, runs: int = 1) -> list[tuple[str, Any]]:
    """Return what so many offline runs kept for the upload, in order: kind and content."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(AssertionError):  # of the reader: its own process writes on after finish(), a part at a time
            found = read(folder)
            if [kind for kind, _ in found].count("exit") == runs:
                return found
        time.sleep(0.1)
    raise TimeoutError("no end was written")


def read(folder: Path) -> list[tuple[str, Any]]:
    found = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        with closing(DataStore()) as store:
            store.open_for_scan(str(file))
            while (data := store.scan_data()) is not None:
                record = wandb_internal_pb2.Record()
                record.ParseFromString(data)
                kind = str(record.WhichOneof("record_type"))
                found.append((kind, getattr(record, kind)))
    return found


def history(kept: list[tuple[str, Any]]) -> list[dict[str, float]]:
    rows = [content for kind, content in kept if kind == "history"]
    return [{"/".join(item.nested_key): json.loads(item.value_json) for item in row.item} for row in rows]


def test_a_training_becomes_one_run_with_configuration_history_and_report(run: Run) -> None:
    with tracked(run, ["wandb=mine"]) as observer:
        run.train(observer)
    kept = records(run.folder.path / "tracking")
    (begun,) = [content for kind, content in kept if kind == "run"]
    config = {item.key: json.loads(item.value_json) for item in begun.config.update}
    assert {key: config[key] for key in run.recipe.settings()} == json.loads(json.dumps(run.recipe.settings()))
    assert (begun.project, begun.display_name) == ("mine", "run")
    told = history(kept)
    assert [row["round"] for row in told] == [1, 2, 3]
    rows = [round_numbers(row) for row in run.folder.metrics()]
    assert [{key: line[key] for key in row} for line, row in zip(told, rows, strict=True)] == rows
    (artefact,) = [content for kind, content in kept if kind == "artifact"]
    assert (artefact.type, [file.path for file in artefact.manifest.contents]) == ("report", ["report.html"])
    summaries = [content for kind, content in kept if kind == "summary"]
    last = {item.key: json.loads(item.value_json) for one in summaries for item in one.update if item.key}
    assert last["summary/population_score"] == run.population_score


def test_it_goes_on_under_the_same_number_and_repeats_no_round(run: Run) -> None:
    tell_finished(run, ["wandb"])
    time.sleep(1.1)  # folders of offline runs have the second in their names
    tell_finished(run, ["wandb"])
    kept = records(run.folder.path / "tracking", runs=2)
    begun = [content for kind, content in kept if kind == "run"]
    assert len(begun) == 2
    assert len({one.run_id for one in begun}) == 1
    assert [row["round"] for row in history(kept)] == [1, 2, 3]
