"""One short run of the digits for all tests of this folder."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

import fedfeast
from fedfeast.serving.extraction import Extractor

ValidatedAs = Callable[..., fedfeast.Run]
SHORT = {
    "training.rounds": 2,
    "training.clients_per_round": 3,
    "evaluation.every_rounds": 1,
    "population.greatest_macs": 2e6,  # nobody trains beyond the sixth variant
}


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedfeast.Run:
    return fedfeast.train("digits", out=tmp_path_factory.mktemp("runs") / "run", settings=SHORT)


@pytest.fixture(scope="session")
def extractor(run: fedfeast.Run) -> Extractor:
    return Extractor(run)


@pytest.fixture
def bundle(run: fedfeast.Run, tmp_path: Path) -> Path:
    """A bundle of its own for every test, since tests damage it."""
    fedfeast.extract(run, tmp_path / "bundle", fedfeast.Limits(max_macs=200e3))
    return tmp_path / "bundle"


@pytest.fixture
def validated_as(run: fedfeast.Run, tmp_path: Path) -> ValidatedAs:
    """Return a copy of the run whose networks validated as told, from the smallest to the largest."""

    def copy(*values: float) -> fedfeast.Run:
        folder = Path(copytree(run.folder.path, tmp_path / "validated", dirs_exist_ok=True))
        summary = json.loads((folder / "summary.json").read_text())
        rows = [
            {**row, "accuracy": value, "value": value, "figures": {"accuracy": value}}
            for row, value in zip(summary["validation_curve"], values, strict=False)
        ]
        (folder / "summary.json").write_text(json.dumps({**summary, "validation_curve": rows}))
        return fedfeast.Run.open(folder)

    return copy
