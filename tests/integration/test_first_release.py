"""What the first release wrote still opens, goes on, is served and verified.

Its archive holds a run that was killed while it saved its third of six rounds (with lying clients and a clipped mean),
the same run finished, and a bundle, a ladder of two and a single file of the latter: made by release 0.1.0 with
``train``, ``extract --max-macs 150e3``, ``export --ladder 2`` and ``export --max-macs 110e3`` on ``tiny.toml``.
"""

import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

import fedfeast
from fedfeast.networks import Layout
from fedfeast.routing import LeadingSlices, SliceMap
from fedfeast.server.collection import Collection
from fedfeast.serving.choice import Limits

ARCHIVE = Path(__file__).with_name("first_release.tar.gz")
EXACT = ("round", "clients", "steps", "payload_parameters", "learning_rate")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def test_a_killed_run_goes_on_to_the_same_end(
    old: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = fedfeast.Run.open(old / "finished")
    assert not caplog.records, "a run's own recipe is nobody's to mend"
    monkeypatch.chdir(old)
    run = fedfeast.train("tiny.toml", out="stopped")
    assert "[hostile] is now called [adversary]" in caplog.text
    rows, wanted = run.folder.metrics(), expected.folder.metrics()
    assert [{key: row[key] for key in EXACT} for row in rows] == [{key: row[key] for key in EXACT} for row in wanted]
    for row, other in zip(rows, wanted, strict=True):  # the same liars, clipped alike; processors round differently
        assert row["losses"] == pytest.approx(other["losses"], rel=0.02)
    assert not any("validation_sizes" in row for row in rows), "it began without them"
    assert run.summary["best_round"] == expected.summary["best_round"]
    assert run.population_score == pytest.approx(expected.population_score, abs=0.02)


def test_a_finished_run_is_read_and_measured_again(old: Path) -> None:
    run = fedfeast.Run.open(old / "finished")
    assert (run.recipe.adversary.share, run.recipe.aggregation.rule) == (0.34, "clipped-mean")
    recorded = np.array([point.accuracy for point in run.curve.points])
    fedfeast.report([run], old / "report.html")
    assert "hostile clients" in (old / "report.html").read_text()
    again = np.array([point.accuracy for point in run.evaluate().points])
    assert np.abs(again - recorded).max() <= 0.01
    assert run.client_wins(fedfeast.Run.open(old / "finished")).ties == 6


def test_both_runs_are_served(old: Path) -> None:
    collection = Collection([old / "finished", old / "stopped"])
    for name, best_round in (("finished", 5), ("stopped", 2)):
        seen = collection.runs[name].seen
        assert seen.offer is not None
        assert seen.offer.round == best_round
        file = seen.offer.file(seen.offer.choose(Limits(max_macs=150e3)), "onnx")
        assert file.path.stat().st_size > 1000


def test_bundle_ladder_and_file_are_verified_and_loaded(old: Path) -> None:
    for path, networks in (("bundle", 1), ("ladder", 2), ("model.onnx", 1)):
        assert len(fedfeast.verify(old / path)) == networks
    images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    with torch.no_grad():
        assert fedfeast.load_bundle(old / "bundle")(images).shape == (2, 10)
        assert fedfeast.Ladder.open(old / "ladder").load(3e5)(images).shape == (2, 10)


def test_names_of_the_first_release() -> None:
    assert fedfeast.Shelf is fedfeast.BundleCache
    layout = Layout.of({"w": (4, 2)})
    assert isinstance(SliceMap.leading(layout, {"w": (2, 2)}), LeadingSlices)
