import json
import subprocess
import sys
from pathlib import Path

import pytest

SHORT = [
    "--set",
    "training.rounds=2",
    "--set",
    "training.clients_per_round=3",
    "--set",
    "evaluation.every_rounds=1",
    "--set",
    "engine.threads=1",
]


def fedfeast(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from fedfeast.app.cli import main; main()", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "digits"
    done = fedfeast("train", "digits", "--out", out, *SHORT)
    assert done.returncode == 0, done.stderr
    for part in ("variant", "parameters", "test accuracy", "population score", "traffic saved", "curve.png"):
        assert part in done.stdout
    return out


def test_help_loads_no_torch() -> None:
    code = (
        "import sys, contextlib\n"
        "from fedfeast.app.cli import app\n"
        "with contextlib.suppress(SystemExit): app(['--help'])\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'matplotlib', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_version_and_no_command() -> None:
    assert fedfeast("--version").stdout.strip() == "0.1.0"
    assert "train" in fedfeast().stdout
    as_module = subprocess.run([sys.executable, "-m", "fedfeast", "--version"], capture_output=True, text=True)
    assert as_module.stdout.strip() == "0.1.0"


def test_training_writes_the_picture_in_two_formats(finished: Path) -> None:
    assert (finished / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (finished / "curve.svg").read_text()


def test_train_again_in_json_reports_the_finished_run(finished: Path) -> None:
    done = fedfeast("train", "digits", "--out", finished, "--json", *SHORT)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["finished_rounds"] == 2
    assert len(content["curve"]) == 8
    assert Path(content["picture"]).is_file()


def test_evaluate_against_another_run(finished: Path) -> None:
    done = fedfeast("evaluate", finished, "--against", finished, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["client_wins"] == {"wins": 0, "ties": 40, "losses": 0}
    assert "client wins" in fedfeast("evaluate", finished, "--against", finished).stdout


def test_plan_in_json_and_side_by_side() -> None:
    plan = json.loads(fedfeast("plan", "digits", "--json").stdout)
    assert plan["supernet"]["parameters"] == 546_906
    assert plan["time"]["seconds_per_round"] > 0
    both = json.loads(fedfeast("plan", "digits", "--gamma", "0,1", "--json").stdout)["plans"]
    assert [one["gamma"] for one in both] == [0.0, 1.0]
    assert "predicted time" in fedfeast("plan", "digits").stdout


def test_search_writes_a_cache_and_its_picture(tmp_path: Path) -> None:
    words = ("search", "digits", "--targets", "2e5,1e6", "--json")
    one, same = (fedfeast(*words, "--out", tmp_path / name) for name in ("one.csv", "same.csv"))
    assert one.returncode == 0, one.stderr
    facts = json.loads(one.stdout)
    assert facts["variants"] == 2
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "same.csv").read_text()
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    assert same.returncode == 0


def test_report(finished: Path, tmp_path: Path) -> None:
    written = fedfeast("report", finished, "--out", tmp_path / "report.html", "--tensorboard", tmp_path / "events")
    assert written.returncode == 0, written.stderr
    assert (tmp_path / "report.html").is_file()
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
            ["train", "cifar100-paper", "--set", "data.folder=/nowhere"],
            "the files of cifar100 are not in /nowhere: run fedfeast data fetch cifar100",
        ),
        (["evaluate", "/nowhere"], "/nowhere is no run folder"),
        (["report", "/nowhere"], "/nowhere is no run folder"),
        (["extract", "/nowhere", "--max-macs", "1e6"], "/nowhere is no run folder"),
        (["plan", "digits", "--gamma", "1,many"], "population.gamma = 'many'"),
        (["plan", "digits", "--set", "variants.cache=cifar100-56"], "not in the network's space"),
        (["search", "digits", "--targets", "1e6,much", "--out", "/nowhere/x.csv"], "'1e6,much' is no list of numbers"),
        (["search", "digits", "--targets", "10", "--out", "/nowhere/x.csv"], "128320"),
    ],
)
def test_bad_input_is_one_sentence_and_no_traceback(words: list[str], sentence: str, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "run")] if words[0] == "train" else []
    done = fedfeast(*words, *out)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_out_folder_with_another_recipe_is_refused(finished: Path) -> None:
    done = fedfeast("train", "digits", "--out", finished)
    assert done.returncode == 2
    assert "holds another run" in done.stderr
