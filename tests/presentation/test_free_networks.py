"""A run whose smallest network everybody is given, whatever it costs, is drawn, reported and exported like others."""

from pathlib import Path

import pytest
from tiny import TINY

import fedfeast
from fedfeast.presentation.report import write_report
from fedfeast.serving.exporting import ExportOptions


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedfeast.Run:
    settings = {
        **TINY,
        "resnet.blocks": [2, 2, 2, 2],
        "method.name": "scalefl",
        "method.preset": "authors",
        "population.below_smallest": "exclude",
        "training.rounds": 1,
    }
    return fedfeast.train("digits", tmp_path_factory.mktemp("free") / "run", settings)


def test_it_is_drawn_at_its_own_macs(run: fedfeast.Run, tmp_path: Path) -> None:
    first, second, *_ = run.curve.points
    assert first.price == 0
    assert 0 < first.drawn_at == first.macs
    assert second.drawn_at == second.price
    pictures = [file for file in write_report([run], tmp_path / "report.html") if file.suffix == ".png"]
    assert "curve.png" in [file.name for file in pictures]


def test_a_ladder_gives_it_to_everybody(run: fedfeast.Run, tmp_path: Path) -> None:
    index = fedfeast.export_ladder(run, tmp_path / "models", 2, ExportOptions(("safetensors",)))
    assert index["rungs"][0]["budgets_macs"] == [1.0]
    assert fedfeast.Ladder.open(tmp_path / "models").choose(1).name == index["rungs"][0]["folder"]
