"""One short run of the digits for all tests of this folder."""

from pathlib import Path

import pytest

import fedfeast
from fedfeast.serving.extraction import Extractor

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
