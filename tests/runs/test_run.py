from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfeast
from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.prepared import write_prepared
from fedfeast.engines.ranks import LostRank
from fedfeast.errors import InvalidInput
from fedfeast.presentation.report import write_report
from fedfeast.runs import Interrupted
from fedfeast.runs.training import Silent

SHORT: dict[str, Any] = {
    "training.rounds": 2,
    "training.clients_per_round": 3,
    "evaluation.every_rounds": 1,
    "engine.threads": 1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedfeast.Run:
    return fedfeast.train("digits", out=tmp_path_factory.mktemp("runs") / "feast", settings=SHORT)


def test_evaluate_repeats_the_curve_of_training(run: fedfeast.Run) -> None:
    trained = run.curve
    (run.folder.path / "summary.json").unlink()
    assert fedfeast.evaluate(run.folder.path) == trained
    assert run.curve == trained


def test_a_finished_run_is_not_trained_again(run: fedfeast.Run) -> None:
    before = {file: file.stat().st_mtime_ns for file in (run.folder.path / "checkpoints").iterdir()}
    fedfeast.train("digits", out=run.folder.path, settings=SHORT)
    assert {file: file.stat().st_mtime_ns for file in (run.folder.path / "checkpoints").iterdir()} == before


def test_client_wins_between_two_methods(run: fedfeast.Run, tmp_path: Path) -> None:
    other = fedfeast.train("digits", out=tmp_path / "fedavg", settings={**SHORT, "method": {"name": "fedavg"}})
    wins, losses = run.client_wins(other), other.client_wins(run)
    assert wins.wins + wins.ties + wins.losses == 40
    assert (wins.wins, wins.ties, wins.losses) == (losses.losses, losses.ties, losses.wins)


def test_client_wins_need_the_same_clients(run: fedfeast.Run, tmp_path: Path) -> None:
    other = fedfeast.train("digits", out=tmp_path / "other", settings={**SHORT, "seed": 1, "training.rounds": 1})
    with pytest.raises(InvalidInput, match="different populations"):
        run.client_wins(other)


def test_unserved_clients_count_as_zero(tmp_path: Path) -> None:
    settings = {**SHORT, "method": {"name": "fedavg", "max_macs": 1.2e6}}
    partial = fedfeast.train("digits", out=tmp_path / "partial", settings=settings)
    summary = partial.summary
    assert 0 < summary["served_share"] < 1
    assert summary["population_score"] == pytest.approx(summary["served_share"] * partial.curve.points[0].accuracy)
    assert summary["participating_clients"] == round(40 * summary["served_share"])


def test_evaluating_before_anything_was_validated(tmp_path: Path) -> None:
    started = fedfeast.Run.create("digits", tmp_path / "started", SHORT)
    with pytest.raises(InvalidInput, match="no validated round yet"):
        started.evaluate()


def test_a_finished_run_needs_its_data_only_to_measure(tmp_path: Path) -> None:
    labels = {split: np.arange(400, dtype=np.int64) % 10 for split in ("train", "test")}
    blocks = [(split, 0, np.full((400, 1, 8, 8), 7, np.uint8)) for split in labels]
    (tmp_path / "data").mkdir()
    decoded = Decoded(tuple("abcdefghij"), 1, 8, labels, blocks)
    write_prepared(tmp_path / "data" / "mine", decoded, {"normalisation": None, "source": {}})
    own = {"data.name": "mine", "data.folder": str(tmp_path / "data"), "data.validation_examples": 20}
    own |= {"data.calibration_examples": 20, "training.rounds": 1}
    trained = fedfeast.train("digits", out=tmp_path / "run", settings={**SHORT, **own})
    (tmp_path / "data").rename(tmp_path / "moved")
    assert fedfeast.Run.open(tmp_path / "run").summary == trained.summary
    assert trained.summary["fairness"] == trained.fairness.facts()
    write_report([fedfeast.Run.open(tmp_path / "run")], tmp_path / "report.html")
    with pytest.raises(InvalidInput, match=r"prepared ones are looked for in .*data"):
        fedfeast.evaluate(tmp_path / "run")
    (tmp_path / "moved").rename(tmp_path / "data")
    blocks = [(split, 0, np.full((400, 1, 8, 8), 8, np.uint8)) for split in labels]
    decoded = Decoded(tuple("abcdefghij"), 1, 8, labels, blocks)
    write_prepared(tmp_path / "data" / "mine", decoded, {"normalisation": None, "source": {}})
    with pytest.raises(InvalidInput, match="'mine' have changed since the run in"):
        fedfeast.evaluate(tmp_path / "run")


class Losing(Silent):
    """An observer in whose first round another process is lost."""

    def on_round(self, row: dict[str, Any]) -> None:
        """Lose it."""
        raise LostRank("another process was lost (closed by peer)")


def test_a_lost_rank_is_the_reason_of_the_stop(tmp_path: Path) -> None:
    with pytest.raises(
        Interrupted, match=r"stopped after round 1: another process was lost \(closed by peer\)"
    ) as stop:
        fedfeast.train("digits", out=tmp_path / "run", settings=SHORT, observer=Losing())
    assert stop.value.reason == "another process was lost (closed by peer)"
