"""The run folder: a directory that describes one run completely."""

import csv
import fcntl
import io
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedfeast.errors import InvalidInput
from fedfeast.evaluation import Curve, CurvePoint
from fedfeast.runs.checkpoint import CheckpointFolder
from fedfeast.runs.files import write_json, write_text
from fedfeast.runs.recipe import Recipe, load_recipe


class RunFolder:
    """Where a run's recipe, environment, clients, metrics, checkpoints and summary lie."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = CheckpointFolder(path / "checkpoints")

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open an existing run."""
        if not (path / "recipe.toml").is_file():
            raise InvalidInput(
                f"{path} is no run folder (it has no recipe.toml): give the --out folder of a train command."
            )
        return cls(path)

    @classmethod
    def create(cls, path: Path, recipe: Recipe, threads: int, device: str) -> "RunFolder":
        """Start a run in a new or empty folder, or reopen it where it holds the same recipe."""
        if path.exists() and not path.is_dir():
            raise InvalidInput(f"--out {path} is a file: give a folder.")
        folder = cls(path)
        if (path / "recipe.toml").is_file():
            folder._refuse_other_recipe(recipe)
        else:
            # A start that was killed may have left a partial file, which is no reason to refuse the next one.
            if path.is_dir() and any(file.suffix != ".partial" for file in path.iterdir()):
                raise InvalidInput(f"--out {path} holds other files and no run: give a new or an empty folder.")
            path.mkdir(parents=True, exist_ok=True)
            write_text(path / "recipe.toml", recipe.to_toml())
        if not (path / "environment.json").is_file():
            write_json(path / "environment.json", _environment(threads, device))
        return folder

    def recipe(self) -> Recipe:
        """Return the resolved recipe."""
        return load_recipe(str(self.path / "recipe.toml"))

    def environment(self) -> dict[str, Any]:
        """Return versions, hardware and thread count of the run's start."""
        content: dict[str, Any] = json.loads((self.path / "environment.json").read_text())
        return content

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from training in the same folder."""
        with (self.path / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidInput(
                    f"another process is training in {self.path}: wait for it, or give another --out folder."
                ) from None
            yield

    def append_metrics(self, row: Mapping[str, Any]) -> int:
        """Add one line to metrics.jsonl; return the file's size afterwards."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
            return file.tell()

    def cut_metrics(self, size: int) -> None:
        """Cut metrics.jsonl back to the rounds of a checkpoint."""
        metrics = self.path / "metrics.jsonl"
        metrics.touch()
        os.truncate(metrics, size)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the rows of metrics.jsonl, one per finished round."""
        lines = (self.path / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def write_clients(self, columns: Mapping[str, Any]) -> None:
        """Write clients.csv, one row per client."""
        self._write_csv("clients.csv", list(columns), zip(*columns.values(), strict=True))

    def clients(self) -> list[dict[str, str]]:
        """Return the rows of clients.csv."""
        with (self.path / "clients.csv").open() as file:
            return list(csv.DictReader(file))

    def budgets_macs(self) -> np.ndarray:
        """Return the clients' budgets."""
        return np.array([float(row["budget_macs"]) for row in self.clients()])

    def write_summary(self, summary: Mapping[str, Any], curve: Curve) -> None:
        """Write summary.json and the curve as a table."""
        points = [asdict(point) for point in curve.points]
        self._write_csv("curve.csv", list(points[0]), (point.values() for point in points))
        write_json(self.path / "summary.json", {**summary, "curve": points})

    def summary(self) -> dict[str, Any]:
        """Return summary.json."""
        if not self.has_summary():
            raise InvalidInput(f"{self.path} has no summary yet: run fedfeast evaluate {self.path}.")
        content: dict[str, Any] = json.loads((self.path / "summary.json").read_text())
        return content

    def has_summary(self) -> bool:
        """Return whether the test curve was measured."""
        return (self.path / "summary.json").is_file()

    def has_finished_rounds(self) -> bool:
        """Return whether there is any round to speak of."""
        metrics = self.path / "metrics.jsonl"
        return metrics.is_file() and metrics.stat().st_size > 0

    def curve(self) -> Curve:
        """Return the measured accuracy-MACs curve."""
        return Curve(tuple(CurvePoint(**point) for point in self.summary()["curve"]))

    def _refuse_other_recipe(self, recipe: Recipe) -> None:
        ours, theirs = recipe.settings(), self.recipe().settings()
        different = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        if different:
            changes = ", ".join(
                f"{key} is {theirs.get(key)!r} there and {ours.get(key)!r} here" for key in different[:3]
            )
            raise InvalidInput(
                f"--out {self.path} holds another run ({changes}): give another folder, or the same settings to go on."
            )

    def _write_csv(self, name: str, header: list[str], rows: Any) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
        write_text(self.path / name, text.getvalue())


def _environment(threads: int, device: str) -> dict[str, Any]:
    libraries = ("torch", "numpy", "scikit-learn", "pydantic", "safetensors")
    return {
        "fedfeast": version("fedfeast"),
        "python": sys.version.split()[0],
        "libraries": {name: version(name) for name in libraries},
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
