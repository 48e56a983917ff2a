from pathlib import Path

import pytest

from fedfeast.app.train_command import how_to_go_on, say_how_to_go_on, train_or_explain
from fedfeast.engines.ranks import Ranks
from fedfeast.runs import Interrupted, Run

SHORT = ["training.rounds=1", "training.clients_per_round=2", "evaluation.every_rounds=1", "engine.threads=1"]


def test_the_way_on_is_the_command_that_was_given() -> None:
    folder, settings = Path("my runs/a"), ["training.rounds=3"]
    words = "train digits --out 'my runs/a' --set training.rounds=3"
    assert how_to_go_on("digits", folder, settings, Ranks()) == f"fedfeast {words}"
    assert how_to_go_on("digits", folder, settings, Ranks(0, 4, 4)) == (
        f"torchrun --nproc-per-node 4 -m fedfeast {words}"
    )


def test_a_finished_run_comes_back(tmp_path: Path) -> None:
    run = train_or_explain("digits", tmp_path / "run", SHORT, as_json=True)
    assert run is not None
    assert run.summary["finished_rounds"] == 1


def test_bad_input_is_said_and_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        train_or_explain("digit", tmp_path / "run", [], as_json=False)
    assert stop.value.code == 2
    assert "did you mean 'digits'" in capsys.readouterr().err


def test_the_reason_of_a_stop_is_said_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run.create("digits", tmp_path / "run", SHORT)
    say_how_to_go_on(run, Interrupted(3, "another process was lost (closed by peer)"), "fedfeast train digits")
    assert capsys.readouterr().err.startswith(
        "Training cannot go on: another process was lost (closed by peer).\nStopped after round 3 of 1;"
    )
    say_how_to_go_on(run, Interrupted(3), "fedfeast train digits")
    assert capsys.readouterr().err.startswith("Stopped after round 3 of 1;")
