"""Against Weights & Biases in its own offline mode, whose files its own reader opens."""

import json
import time
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore

from fedfeast.presentation.tracking import tell_finished, tracked
from fedfeast.presentation.tracking.tracker import round_numbers
from fedfeast.runs import Run


def records(folder: Path) -> list[tuple[str, Any]]:
    """Return what was kept for the upload, in order: kind and content, of one or several offline runs."""
    found = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        store = DataStore()
        store.open_for_scan(str(file))
        while (data := store.scan_data()) is not None:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            kind = str(record.WhichOneof("record_type"))
            found.append((kind, getattr(record, kind)))
        store.close()
    return found


def history(folder: Path) -> list[dict[str, float]]:
    rows = [content for kind, content in records(folder) if kind == "history"]
    return [{"/".join(item.nested_key): json.loads(item.value_json) for item in row.item} for row in rows]


def test_a_training_becomes_one_run_with_configuration_history_and_report(run: Run) -> None:
    folder = run.folder.path / "tracking"
    with tracked(run, ["wandb=mine"]) as observer:
        run.train(observer)
    (begun,) = [content for kind, content in records(folder) if kind == "run"]
    config = {item.key: json.loads(item.value_json) for item in begun.config.update}
    assert {key: config[key] for key in run.recipe.settings()} == json.loads(json.dumps(run.recipe.settings()))
    assert (begun.project, begun.display_name) == ("mine", "run")
    told = history(folder)
    assert [row["round"] for row in told] == [1, 2, 3]
    rows = [round_numbers(row) for row in run.folder.metrics()]
    assert [{key: line[key] for key in row} for line, row in zip(told, rows, strict=True)] == rows
    (artefact,) = [content for kind, content in records(folder) if kind == "artifact"]
    assert (artefact.type, [file.path for file in artefact.manifest.contents]) == ("report", ["report.html"])
    summaries = [content for kind, content in records(folder) if kind == "summary"]
    last = {item.key: json.loads(item.value_json) for one in summaries for item in one.update if item.key}
    assert last["summary/population_score"] == run.population_score


def test_it_goes_on_under_the_same_number_and_repeats_no_round(run: Run) -> None:
    folder = run.folder.path / "tracking"
    tell_finished(run, ["wandb"])
    time.sleep(1.1)  # folders of offline runs have the second in their names
    tell_finished(run, ["wandb"])
    begun = [content for kind, content in records(folder) if kind == "run"]
    assert len(begun) == 2
    assert len({one.run_id for one in begun}) == 1
    assert [row["round"] for row in history(folder)] == [1, 2, 3]
