from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedfeast.presentation.tensorboard import write_events
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
