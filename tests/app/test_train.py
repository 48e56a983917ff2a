import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from photo_set import write_photos

from fedfeast.app.stopping import command_line, errors_said_once, stops_explained
from fedfeast.engines.ranks import LostRank, Ranks
from fedfeast.errors import InvalidInput
from fedfeast.runs import Interrupted

Command = Callable[..., CompletedProcess[str]]


def test_training_shows_a_table_and_draws_a_picture(training: CompletedProcess[str], trained: Path) -> None:
    assert training.stderr == ""
    for part in ("variant", "parameters", "test accuracy", "population score", "traffic saved", "curve.png"):
        assert part in training.stdout
    assert (trained / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (trained / "curve.svg").read_text()


def test_training_says_first_what_it_will_cost(training: CompletedProcess[str]) -> None:
    first = training.stdout.partition("\n")[0]
    said = r"2 rounds will take about [\d.]+ s here \([\d.]+ s a round, 1 thread\) and 0\.\d+ GiB of memory"
    assert re.fullmatch(said, first), first


def test_a_finished_run_costs_nothing_more(fedfeast: Command, copied: Path, short: list[str]) -> None:
    assert "will take" not in fedfeast("train", "digits", "--out", copied, *short).stdout


def test_train_again_in_json_reports_the_finished_run(fedfeast: Command, copied: Path, short: list[str]) -> None:
    done = fedfeast("train", "digits", "--out", copied, "--json", *short)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["finished_rounds"] == 2
    assert len(content["curve"]) == 8
    assert Path(content["picture"]).is_file()


def test_evaluate_against_another_run(fedfeast: Command, copied: Path, trained: Path) -> None:
    done = fedfeast("evaluate", copied, "--against", trained, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["client_wins"] == {"wins": 0, "ties": 40, "losses": 0}
    assert "client wins        0 better, 40 equal" in fedfeast("evaluate", copied, "--against", trained).stdout


def test_report(fedfeast: Command, trained: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    written = fedfeast("report", trained, "--out", page, "--tensorboard", tmp_path / "events")
    assert (written.returncode, written.stdout) == (0, f"report   {page}\n"), written.stderr
    assert page.is_file()
    assert any((tmp_path / "events").rglob("events.*"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "digit"], "unknown recipe 'digit' (did you mean 'digits'?)"),
        (["train", "digits", "--set", "training.round=3"], "did you mean 'training.rounds'?"),
        (["train", "digits", "--set", "training.rounds=many"], "training.rounds = 'many'"),
        (["train", "digits", "--set", "population.gamma=-1"], "population.gamma = -1"),
        (["train", "digits", "--set", "population.num_clients=5000"], "5000 clients"),
        (["train", "digits", "--set", "population.least_macs=1000"], "below the smallest network"),
        (
            ["train", "digits", "--set", "training.clients_per_round=41"],
            "is more than the 40 clients",
        ),
        (["train", "digits", "--engine", "graph"], "engine.name = 'graph'"),
        (
            ["train", "cifar100-paper", "--set", "data.folder=/nowhere"],
            "the files of cifar100 are not in /nowhere: run fedfeast data fetch cifar100",
        ),
        (["evaluate", "/nowhere"], "/nowhere is no run folder"),
        (["report", "/nowhere"], "/nowhere is no run folder"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], sentence: str, refused: Callable[..., None], tmp_path: Path
) -> None:
    refused(sentence, *words, *(["--out", tmp_path / "run"] if words[0] == "train" else []))


def test_an_out_folder_with_another_recipe_is_refused(refused: Callable[..., None], trained: Path) -> None:
    refused("holds another run", "train", "digits", "--out", trained)


def test_a_stop_says_where_and_how_to_go_on(
    fedfeast: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: list[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedfeast.app.progress.LiveProgress.on_round", stop)
    done = fedfeast("train", "digits", "--out", tmp_path / "run", *short)
    assert done.returncode == 130
    assert done.stdout.startswith("2 rounds will take about ")
    assert done.stdout.count("\n") == 1
    words = f"train digits --out {tmp_path / 'run'} {' '.join(short)}"
    assert done.stderr == f"Stopped after round 1 of 2; all of it is saved. Go on with:\n  fedfeast {words}\n"


def test_the_way_on_is_the_command_that_was_given() -> None:
    words = ["train", "digits", "--out", "my runs/a", "--set", "training.rounds=3"]
    quoted = "train digits --out 'my runs/a' --set training.rounds=3"
    assert command_line(Ranks(), words) == f"fedfeast {quoted}"
    assert command_line(Ranks(0, 4, 4), words) == f"torchrun --nproc-per-node 4 -m fedfeast {quoted}"


@pytest.mark.parametrize(
    ("reason", "said"),
    [("closed by peer", "Training cannot go on: closed by peer.\nStopped after round 3 of 9;"), ("", "Stopped after")],
)
def test_the_reason_of_a_stop_is_said_with_it(reason: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    for ranks, expected in ((Ranks(0, 2, 2), True), (Ranks(1, 2, 2), False)):
        with pytest.raises(SystemExit) as end, stops_explained(ranks, ["train"], lambda after: f"{after} of 9"):
            raise Interrupted(3, reason)
        assert end.value.code == 130
        assert capsys.readouterr().err.startswith(said) is expected, "the leader alone speaks"


@pytest.mark.parametrize(("error", "code"), [(InvalidInput("too [many]"), 2), (LostRank("a process was lost"), 1)])
def test_what_is_wrong_is_said_once(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end, errors_said_once(Ranks()):
        raise error
    assert end.value.code == code
    assert capsys.readouterr().err == f"error: {error}\n"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of made-up photos, with files among them that are none."""
    return write_photos(tmp_path_factory.mktemp("home") / "photos", each=10, broken=3, longest=128)


def test_a_folder_of_photos_is_trained_on_in_one_command(
    fedfeast: Command, refused: Callable[..., None], photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDFEAST_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    done = fedfeast("train", photos, "--minutes", "0.1")
    assert done.returncode == 0, done.stderr
    assert (
        "photos is prepared: 6 classes, 32 x 32 colour images, 48 train, 12 test.\n3 files were skipped:" in done.stdout
    )
    summary = json.loads((tmp_path / "runs" / "photos" / "summary.json").read_text())
    assert f"0.1 minutes: {summary['finished_rounds']} rounds of about " in done.stdout
    macs = [point["macs"] for point in summary["curve"]]
    assert macs[0] < 1e6 < 15e6 < macs[-1]
    assert (tmp_path / "runs" / "photos" / "inputs" / "variants.cache.csv").is_file()
    again = fedfeast("train", photos, "--minutes", "0.1", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["curve"] == summary["curve"]
    assert "is prepared" not in again.stderr
    (photos / "balls" / "IMG_0000.jpg").unlink()
    other = fedfeast("train", photos, "--minutes", "0.1")
    assert other.returncode == 2
    assert "holds another run (data.name is 'photos' there" in other.stderr
    refused("runs/photos is a run's folder", "train", "runs/photos")


def test_trackers_are_told_by_training_and_of_finished_runs(
    fedfeast: Command, copied: Path, short: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert copied == tmp_path / "run"
    done = fedfeast("train", "digits", "--out", "run", "--track", "tensorboard", *short)
    assert (done.returncode, done.stderr) == (0, "")
    assert any((tmp_path / "run" / "tracking" / "tensorboard").glob("events.*"))
    assert (tmp_path / "run" / "report.html").is_file()
    done = fedfeast("report", "run", "--track", "tensorboard=events")
    assert (done.returncode, done.stdout) == (0, "report   run/report.html\n"), done.stderr
    assert any((tmp_path / "events" / "run").glob("events.*"))


def test_an_unknown_tracker_is_said_before_a_folder_is_made(refused: Callable[..., None], tmp_path: Path) -> None:
    refused("--track 'tensorbord' is no tracker", "train", "digits", "--out", tmp_path / "run", "--track", "tensorbord")
    assert not (tmp_path / "run").exists()
