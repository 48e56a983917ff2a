"""Weights & Biases: a run of a project, online or offline as its own settings say."""

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedfeast.presentation.tracking.tracker import Told, TrackedRun

if TYPE_CHECKING:
    import wandb

PROJECT = "fedfeast"  # where WANDB_PROJECT names no other


class WandbTracker:
    """Writes to PROJECT or ENTITY/PROJECT."""

    name = "wandb"

    def __init__(self, where: str | None = None) -> None:
        self.where = where or os.environ.get("WANDB_PROJECT") or PROJECT
        self._run: wandb.Run | None = None

    def open(self, run: TrackedRun, told: Told | None) -> Told:
        """Begin a run with the recipe as its configuration, or go on under the same number."""
        import wandb

        entity, _, project = self.where.rpartition("/")
        told = told or Told(uuid.uuid4().hex[:12], 0)
        run.folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=project,
            entity=entity or None,
            id=told.identity,
            resume="allow",
            name=run.name,
            dir=os.environ.get("WANDB_DIR", str(run.folder)),
            config=dict(run.settings),
            reinit="create_new",  # a run that the caller has open stays as it is
            # Nothing is read of the terminal, which shows the training, nor of the caller's own repository.
            settings=wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True),
        )
        self._run.define_metric("*", step_metric="round")
        return told

    def tell_round(self, round_number: int, values: Mapping[str, float]) -> None:
        """Log a round's numbers over its own."""
        assert self._run is not None
        self._run.log({"round": round_number, **values})

    def tell_end(self, summary: Mapping[str, float], report: Path) -> None:
        """Add the summary's numbers, and the report as an artefact."""
        import wandb

        assert self._run is not None
        self._run.summary.update(dict(summary))
        artifact = wandb.Artifact(f"report-{self._run.id}", type="report")
        artifact.add_file(str(report))
        self._run.log_artifact(artifact)

    def close(self, finished: bool) -> None:
        """Say how the run ended."""
        assert self._run is not None
        self._run.finish(exit_code=0 if finished else 1)
