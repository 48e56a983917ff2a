"""MLflow: a run of an experiment, on a server or in a local store."""

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from fedfeast.errors import InvalidInput
from fedfeast.presentation.tracking.tracker import Told, TrackedRun

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "fedfeast"  # where MLFLOW_EXPERIMENT_NAME names no other
ALLOW_FOLDER = "MLFLOW_ALLOW_FILE_STORE=true"
MOST_PARAMETERS = 100  # of one request
MOST_METRICS = 1000
MOST_CHARACTERS = 6000  # of a parameter's value


class MLflowTracker:
    """Writes to a tracking URI, or to the one that MLflow itself would choose."""

    name = "mlflow"

    def __init__(self, where: str | None = None) -> None:
        self._given = where
        self._client: MlflowClient | None = None
        self._run = ""

    @property
    def where(self) -> str:
        """The tracking URI without user and password."""
        import mlflow

        parts = urlsplit(self._given or str(mlflow.get_tracking_uri()))
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def open(self, run: TrackedRun, told: Told | None) -> Told:
        """Begin a run with the recipe as its parameters, or go on with the one there was."""
        self._client = client = self._connected()
        if told is not None and self._is_there(told.identity):
            self._run = told.identity
            client.update_run(self._run, status="RUNNING")
            return told
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        known = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if known is None else known.experiment_id
        self._run = client.create_run(experiment, run_name=run.name).info.run_id
        self._tell_parameters(run.settings)
        return Told(self._run, 0)

    def _connected(self) -> "MlflowClient":
        """Return MLflow's client; the way out of a refused folder stands at the end of MLflow's own long message."""
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        try:
            return MlflowClient(tracking_uri=self._given)
        except MlflowException as error:
            if ALLOW_FOLDER not in str(error):
                raise
            raise InvalidInput(
                f"MLflow takes a folder as its store only where {ALLOW_FOLDER} is set: set it, or give a database, "
                "e.g. --track mlflow=sqlite:///mlflow.db."
            ) from error

    def tell_round(self, round_number: int, values: Mapping[str, float]) -> None:
        """Log a round's numbers at the step of that number."""
        from mlflow.entities import Metric

        assert self._client is not None
        now = int(time.time() * 1000)
        metrics = [Metric(_allowed(name), value, now, round_number) for name, value in values.items()]
        for first in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._run, metrics=metrics[first : first + MOST_METRICS])

    def tell_end(self, summary: Mapping[str, float], report: Path) -> None:
        """Log the summary's numbers, and the report as an artefact."""
        assert self._client is not None
        self.tell_round(int(summary.get("summary/finished_rounds", 0)), summary)
        self._client.log_artifact(self._run, str(report))

    def close(self, finished: bool) -> None:
        """Say how the run ended."""
        assert self._client is not None
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")

    def _is_there(self, identity: str) -> bool:
        """Return whether a run is there and was not deleted."""
        from mlflow import MlflowException

        assert self._client is not None
        try:
            return bool(self._client.get_run(identity).info.lifecycle_stage == "active")
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise  # a server that does not answer has not lost the run

    def _tell_parameters(self, settings: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        assert self._client is not None
        parameters = [Param(key, str(value)[:MOST_CHARACTERS]) for key, value in settings.items()]
        for first in range(0, len(parameters), MOST_PARAMETERS):
            self._client.log_batch(self._run, params=parameters[first : first + MOST_PARAMETERS])


def _allowed(name: str) -> str:
    """Return a metric's name in the characters that MLflow takes."""
    return re.sub(r"[^\w\-. :/]", "_", name)
