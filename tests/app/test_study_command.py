import json
import subprocess
import sys
from pathlib import Path

import pytest

import fedfeast
from fedfeast.app.study_command import how_to_go_on, list_studies, study_or_explain
from fedfeast.engines.ranks import Ranks
from fedfeast.studies import StudyOptions

SHORT = ["training.clients_per_round=2", "evaluation.every_rounds=1", "engine.threads=1"]


# One process for many commands: each would need seconds to start.
MANY = """
import contextlib, io, json, sys
from fedfeast.app.cli import main
answers = []
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    answers.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""
BAD_INPUT = {
    "unknown study 'table1' (did you mean 'table1-population'?)": ["table1"],
    "did you mean 'digits-all'?": ["digits-al"],
    "--dataset 'mnist' is unknown: choose one of cifar100, ": ["digits-all", "--dataset", "mnist"],
    "study digits-all runs on digits": ["digits-all", "--dataset", "cifar100"],
    "--rounds 0: give at least 1": ["digits-all", "--rounds", "0"],
    "--seeds 0,1,0 repeats 0: give every seed once": ["digits-all", "--seeds", "0,1,0"],
    "--seeds 'zero' is no list of seeds": ["digits-all", "--seeds", "zero"],
    "seed = -1": ["digits-all", "--seeds", "-1"],
    "use --seeds": ["digits-all", "--set", "seed=3"],
    "did you mean 'training.rounds'?": ["digits-all", "--set", "training.round=3"],
    "is what study figure1-gamma varies by itself": ["figure1-gamma", "--set", "population.gamma=0.5"],
}


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    commands = [["study", *words, "--out", str(tmp_path / "study")] for words in BAD_INPUT.values()]
    done = subprocess.run([sys.executable, "-c", MANY, json.dumps(commands)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for sentence, (code, out, err) in zip(BAD_INPUT, json.loads(done.stdout), strict=True):
        assert code == 2, sentence
        assert sentence in err
        assert err.count("\n") == 1
        assert out == ""
    assert not any(tmp_path.iterdir())


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    fedfeast.study("digits-all", folder / "digits", StudyOptions(rounds=1, settings=SHORT))
    return folder


def test_from_python_a_study_returns_tables_and_curves(studies: Path) -> None:
    options = fedfeast.StudyOptions(rounds=1, settings=SHORT)
    result = fedfeast.study("digits-all", studies / "digits", options)
    assert [table.name for table in result.findings.tables] == ["methods"]
    assert result.findings.plots[0].lines[0].label == "FEAST"
    assert (studies / "digits" / "report.html").is_file()
    assert (studies / "digits" / "tables" / "methods.tex").is_file()
    assert all("Below 80 %" in note for note in result.findings.notes)


def test_tables_on_the_terminal_and_as_json(studies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = StudyOptions(rounds=1, settings=SHORT)
    study_or_explain("digits-all", studies / "digits", options, as_json=False)
    printed = capsys.readouterr().out
    for part in ("finished before", "Every method on the handwritten digits", "FedAvg", "report.html"):
        assert part in printed
    study_or_explain("digits-all", studies / "digits", options, as_json=True)
    content = json.loads(capsys.readouterr().out)
    assert content["study"] == "digits-all"
    assert len(content["runs"]) == len(content["tables"][0]["rows"])


def test_a_study_that_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study_or_explain("communication", tmp_path / "study", StudyOptions(), as_json=False)
    printed = capsys.readouterr().out
    assert "44.86" in printed
    assert "43.80" in printed
    assert not (tmp_path / "runs").exists()


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    list_studies(as_json=False)
    assert "zipf-sensitivity" in capsys.readouterr().out
    list_studies(as_json=True)
    names = [one["name"] for one in json.loads(capsys.readouterr().out)["studies"]]
    assert len(names) == 13
    assert "figure1-gamma" in names


def test_another_study_or_another_run_in_the_folder_is_refused(
    studies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = studies / "digits"
    with pytest.raises(SystemExit) as stop:
        study_or_explain("communication", digits, StudyOptions(), as_json=False)
    assert stop.value.code == 2
    assert "holds another study (study is 'digits-all' there and 'communication' here)" in capsys.readouterr().err
    run = next((studies / "runs").iterdir())
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(recipe.replace("batch_size = 16", "batch_size = 8"))
    try:
        with pytest.raises(SystemExit) as stop:
            study_or_explain("digits-all", digits, StudyOptions(rounds=1, settings=SHORT), as_json=False)
    finally:
        (run / "recipe.toml").write_text(recipe)
    assert stop.value.code == 2
    assert "training.batch_size is 8 there and 16 here" in capsys.readouterr().err


def test_a_stop_says_where_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedfeast.app.progress.StudyProgress.on_round", stop)
    with pytest.raises(SystemExit) as end:
        study_or_explain("digits-all", tmp_path / "study", StudyOptions(rounds=2, settings=SHORT), as_json=True)
    assert end.value.code == 130
    said = capsys.readouterr().err
    assert "Stopped in run 1 of" in said
    assert "(FEAST, seed 0) after round 1; all of it is saved. Go on with:" in said
    assert f"fedfeast study digits-all --out {tmp_path / 'study'} --rounds 2 --set training.clients" in said


def test_the_way_on_is_the_command_that_was_given() -> None:
    options = StudyOptions("digits", 3, (0, 1), ["a.b=c d"], Path("my runs"))
    words = "study footprint --out 'my study' --runs 'my runs' --dataset digits --rounds 3 --seeds 0,1 --set 'a.b=c d'"
    assert how_to_go_on("footprint", Path("my study"), options, Ranks()) == f"fedfeast {words}"
    assert how_to_go_on("footprint", None, StudyOptions(), Ranks(0, 2, 2)) == (
        "torchrun --nproc-per-node 2 -m fedfeast study footprint"
    )
