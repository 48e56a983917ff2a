"""A finished run that trackers are told of, and libraries that call nobody."""

from pathlib import Path
from shutil import copytree

import pytest

import fedfeast
from fedfeast.runs import Run

SHORT = {
    "training.rounds": 3,
    "training.clients_per_round": 2,
    "evaluation.every_rounds": 2,
    "checkpoint.every_rounds": 1,
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 wants to be asked for it
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three rounds; no test changes it."""
    return fedfeast.train("digits", tmp_path_factory.mktemp("tracked") / "run", SHORT).folder.path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Run:
    """A copy of the finished run."""
    return Run.open(copytree(finished, tmp_path / "run"))
