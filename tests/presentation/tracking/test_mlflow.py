"""Against MLflow's own store in local files."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from fedfeast.errors import InvalidInput
from fedfeast.presentation.tracking import tell_finished, tracked
from fedfeast.presentation.tracking.mlflow import _allowed
from fedfeast.runs import Run


def runs_of(uri: str) -> list[str]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("fedfeast")
    assert experiment is not None
    return [one.info.run_id for one in client.search_runs([experiment.experiment_id])]


def test_a_training_becomes_one_run_with_parameters_metrics_and_report(run: Run, tmp_path: Path) -> None:
    uri = (tmp_path / "store").as_uri()
    with tracked(run, [f"mlflow={uri}"]) as observer:
        run.train(observer)
    client, (identity,) = MlflowClient(uri), runs_of(uri)
    kept = client.get_run(identity)
    assert kept.data.params == {key: str(value) for key, value in run.recipe.settings().items()}
    assert (kept.info.run_name, kept.info.status) == ("run", "FINISHED")
    rows = run.folder.metrics()
    history = [(one.step, one.value) for one in client.get_metric_history(identity, "payload_parameters")]
    assert history == [(row["round"], row["payload_parameters"]) for row in rows]
    assert [one.step for one in client.get_metric_history(identity, "validation_score")] == [2, 3]
    assert kept.data.metrics["summary/population_score"] == pytest.approx(run.population_score)
    (artefact,) = client.list_artifacts(identity)
    assert artefact.path == "report.html"
    fetched = client.download_artifacts(identity, "report.html", str(tmp_path))
    assert Path(fetched).read_bytes() == (run.folder.path / "report.html").read_bytes()


def test_a_folder_that_mlflow_refuses_is_told_with_the_way_out(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE")
    with pytest.raises(InvalidInput, match="MLFLOW_ALLOW_FILE_STORE=true is set: set it, or give a database"):
        tell_finished(run, [f"mlflow={(tmp_path / 'store').as_uri()}"])


def test_it_goes_on_as_the_same_run_unless_that_was_deleted(run: Run, tmp_path: Path) -> None:
    uri = (tmp_path / "store").as_uri()
    for _ in range(2):
        tell_finished(run, [f"mlflow={uri}"])
    (identity,) = runs_of(uri)
    client = MlflowClient(uri)
    assert len(client.get_metric_history(identity, "learning_rate")) == 3, "no round is told twice"
    client.delete_run(identity)
    tell_finished(run, [f"mlflow={uri}"])
    (other,) = runs_of(uri)
    assert other != identity
    assert len(client.get_metric_history(other, "learning_rate")) == 3


def test_the_environment_chooses_store_and_experiment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "named").as_uri())
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    tell_finished(run, ["mlflow"])
    assert MlflowClient((tmp_path / "named").as_uri()).get_experiment_by_name("mine") is not None


def test_a_store_that_goes_missing_is_no_reason_to_stop(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InvalidInput, match="--track mlflow cannot be opened"):
        tell_finished(run, [f"mlflow={(tmp_path / 'file').as_uri()}"])


def test_names_have_the_characters_that_are_allowed() -> None:
    assert _allowed("losses/teacher 1.5:é+?") == "losses/teacher 1.5:é__"
