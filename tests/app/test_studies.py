import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import fedfeast as package
from fedfeast.app.stopping import command_line
from fedfeast.app.studies import at_once_words, study_words
from fedfeast.engines.ranks import Ranks
from fedfeast.studies import StudyOptions

Command = Callable[..., CompletedProcess[str]]
# Of narrow networks: FIARSE alone serves 57 of them.
SHORT = [
    "training.clients_per_round=1",
    "data.calibration_examples=20",
    "data.validation_examples=20",
    "resnet.stage_channels=[16, 16, 32, 32]",
]
OPTIONS = StudyOptions(rounds=1, settings=SHORT)
WORDS = ["--rounds", "1", *(word for setting in SHORT for word in ("--set", setting))]


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    package.study("digits-all", folder / "digits", OPTIONS)
    return folder


def test_from_python_a_study_returns_tables_and_curves(studies: Path) -> None:
    result = package.study("digits-all", studies / "digits", OPTIONS)
    assert [table.name for table in result.findings.tables] == ["methods", "pairs"]
    assert result.findings.plots[0].lines[0].label == "FEAST"
    assert (studies / "digits" / "report.html").is_file()
    assert (studies / "digits" / "tables" / "methods.tex").is_file()
    assert len(result.pairs) == len(result.results.arms) - 1
    assert any(note.startswith("Ties with FEAST") for note in result.findings.notes)


def test_tables_on_the_terminal_and_as_json(fedfeast: Command, studies: Path) -> None:
    words = ("study", "digits-all", "--out", studies / "digits", *WORDS)
    printed = fedfeast(*words).stdout
    for part in ("finished before", "Every method on the handwritten digits", "FedAvg", "report.html"):
        assert part in printed
    content = json.loads(fedfeast(*words, "--json").stdout)
    assert content["study"] == "digits-all"
    assert len(content["runs"]) == len(content["tables"][0]["rows"])


def test_a_study_that_trains_nothing(fedfeast: Command, tmp_path: Path) -> None:
    printed = fedfeast("study", "communication", "--out", tmp_path / "study").stdout
    assert "52.81" in printed
    assert "43.80" in printed
    assert not (tmp_path / "runs").exists()


def test_the_list(fedfeast: Command) -> None:
    shown = fedfeast("study", "list").stdout
    assert "zipf-sensitivity" in shown
    assert "trains nothing" in shown
    names = [one["name"] for one in json.loads(fedfeast("study", "list", "--json").stdout)["studies"]]
    assert len(names) == 24
    assert names[-1] == "choose"
    assert "figure1-gamma" in names


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["table1"], "unknown study 'table1' (did you mean 'table1-population'?)"),
        (["digits-al"], "did you mean 'digits-all'?"),
        (["digits-all", "--dataset", "mnist"], "--dataset 'mnist' is unknown: choose one of cifar100, "),
        (["digits-all", "--dataset", "cifar100"], "study digits-all runs on digits"),
        (["digits-all", "--rounds", "0"], "--rounds 0: give at least 1"),
        (["digits-all", "--seeds", "0,1,0"], "--seeds 0,1,0 repeats 0: give every seed once"),
        (["digits-all", "--seeds", "zero"], "--seeds 'zero' is no list of seeds"),
        (["digits-all", "--seeds", "-1"], "seed = -1"),
        (["digits-all", "--at-once", "0"], "--at-once 0: give at least 1"),
        (["digits-all", "--no-mps"], "--no-mps is for runs that share a device: add --at-once 2 or more"),
        (["digits-all", "--at-once", "2", "--mps"], "--mps is for CUDA devices, and these runs are on the CPU"),
        (["digits-all", "--set", "seed=3"], "use --seeds"),
        (["digits-all", "--set", "training.round=3"], "did you mean 'training.rounds'?"),
        (["digits-all", "digits"], "digits is for study choose, and study digits-all has its own: leave it out"),
        (["digits-all", "--minutes", "3"], "--minutes 3 is for study choose, and study digits-all has its own"),
        (["choos"], "did you mean 'choose'?"),
        (["choose"], "study choose needs a recipe: give a name, e.g. digits, or a TOML file's path"),
        (["choose", "digit", "--minutes", "3"], "unknown recipe 'digit' (did you mean 'digits'?)"),
        (["choose", "digits"], "study choose needs to know how long candidates train: give --minutes"),
        (["choose", "digits", "--minutes", "0"], "--minutes 0: give a number above 0"),
        (
            ["choose", "digits", "--minutes", "3", "--dataset", "digits"],
            "study choose takes the data of its recipe",
        ),
        (["choose", "digits", "--minutes", "3", "--rounds", "9"], "and --rounds 9 the same number of rounds"),
        (["choose", "digits", "--minutes", "3", "--arm", "fest"], "--arm 'fest' is no method: choose from feast"),
        (["choose", "digits", "--rounds", "3", "--set", "method.name=feast"], "the study chooses its methods"),
        (["figure1-gamma", "--set", "population.gamma=0.5"], "is what study figure1-gamma varies by itself"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], sentence: str, refused: Callable[..., None], tmp_path: Path
) -> None:
    refused(sentence, "study", *words, "--out", tmp_path / "study")
    assert not any(tmp_path.iterdir())


def test_another_study_in_the_folder_is_refused(refused: Callable[..., None], studies: Path) -> None:
    sentence = "holds another study (study is 'digits-all' there and 'communication' here)"
    refused(sentence, "study", "communication", "--out", studies / "digits")


def test_another_run_in_the_folder_is_refused(fedfeast: Command, studies: Path) -> None:
    run = next((studies / "runs").iterdir())
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(recipe.replace("batch_size = 16", "batch_size = 8"))
    try:
        done = fedfeast("study", "digits-all", "--out", studies / "digits", *WORDS)
    finally:
        (run / "recipe.toml").write_text(recipe)
    assert done.returncode == 2
    assert "training.batch_size is 8 there and 16 here" in done.stderr


def test_a_stop_says_where_and_how_to_go_on(fedfeast: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    words = ("study", "digits-all", "--out", tmp_path / "study", "--rounds", "2", *WORDS[2:], "--json")
    monkeypatch.setattr("fedfeast.app.progress.StudyProgress.on_round", stop)
    said = fedfeast(*words)
    assert (said.returncode, said.stdout) == (130, "")
    assert "Stopped in run 1 of" in said.stderr
    assert "(FEAST, seed 0) after round 1; all of it is saved. Go on with:" in said.stderr
    assert f"fedfeast study digits-all --out {tmp_path / 'study'} --rounds 2 --set training.clients" in said.stderr
    monkeypatch.setattr("fedfeast.studies.running._claim", stop)
    said = fedfeast(*words)
    assert said.returncode == 130
    assert said.stderr.startswith("Stopped in its preparation; all of it is saved. Go on with:")


def test_a_choice_says_who_is_left_out_and_in_the_end_which_to_take(fedfeast: Command, tmp_path: Path) -> None:
    levels = ["--set", "resnet.stage_channels=[64, 64, 128, 256]"]
    words = ["study", "choose", "digits", "--out", tmp_path / "choice", "--arm", "fedavg", "--arm", "fjord"]
    words += ["--minutes", "0.02", *WORDS[2:6], *levels]
    printed = fedfeast(*words).stdout
    said = [printed.index(part) for part in ("candidates  FedAvg\n", "left out    FjORD: client", "run 1 of 1  FedAvg")]
    assert said == sorted(said)
    for part in ("trying how long a round takes  1 of 3  FedAvg", "rounds      FedAvg ", "Take FedAvg", "report.html"):
        assert part in printed
    again = fedfeast(*words, "--json")
    assert json.loads(again.stdout)["recommended"] == "fedavg"
    assert "finished before" in again.stderr
    assert "trying" not in again.stderr


def test_the_way_on_is_the_command_that_was_given() -> None:
    options = StudyOptions("digits", 3, (0, 1), ["a.b=c d"], Path("my runs"), track=["tensorboard"])
    words = "study footprint --out 'my study' --runs 'my runs' --dataset digits --rounds 3 --seeds 0,1 --set 'a.b=c d'"
    words += " --track tensorboard"
    assert command_line(Ranks(), study_words("footprint", Path("my study"), options)) == f"fedfeast {words}"
    plain = study_words("footprint", None, StudyOptions())
    assert command_line(Ranks(0, 2, 2), plain) == "torchrun --nproc-per-node 2 -m fedfeast study footprint"
    chosen = study_words("choose", None, StudyOptions(), ["my.toml", "--minutes", "5"])
    assert chosen == ["study", "choose", "my.toml", "--minutes", "5"]
    assert at_once_words(1, None) == []
    assert at_once_words(4, None) == ["--at-once", "4"]
    assert at_once_words(4, False) == ["--at-once", "4", "--no-mps"]


def test_runs_at_once_that_fail_are_named_with_the_way_on(fedfeast: Command, tmp_path: Path) -> None:
    words = ["study", "post-hoc-extraction", "--dataset", "digits", "--out", str(tmp_path / "study"), *WORDS]
    done = fedfeast(*words, "--set", "training.learning_rate=1e38", "--at-once", "3")
    assert done.returncode == 2
    assert done.stdout.startswith("1 run on the CPU: ")
    assert "error: FEAST, seed 0: training diverged in round 1 (weights that are not finite)" in done.stderr
    assert "All other runs are finished. Go on with:\n  fedfeast study post-hoc-extraction --out " in done.stderr
    assert done.stderr.endswith("--at-once 3\n")
