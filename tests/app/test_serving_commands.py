import json
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

import pytest

import fedfeast as package

# Typer's own import of Click warns; other tests of commands leave that to a second process.
pytestmark = pytest.mark.filterwarnings("ignore:'click.*:DeprecationWarning")
SHORT = {"training.rounds": 2, "training.clients_per_round": 3, "evaluation.every_rounds": 1}


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package.train("digits", tmp_path_factory.mktemp("runs") / "digits", SHORT).folder.path


@pytest.fixture
def fedfeast(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process, as a terminal calls it: a process for each call would take a minute."""
    from fedfeast.app.cli import main

    def call(*words: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["fedfeast", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "120")
        code: int | str | None = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        assert isinstance(code, int)
        return Done(code, captured.out, captured.err)

    return call


def test_extract_one_bundle(fedfeast: Command, trained: Path, tmp_path: Path) -> None:
    done = fedfeast("extract", trained, "--max-macs", "6e5", "--out", tmp_path / "bundle", "--json")
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["macs"] == 545_920
    copytree(trained, tmp_path / "run")
    done = fedfeast("extract", tmp_path / "run", "--max-params", "1e5")
    assert "48,578 parameters, test accuracy" in done.stdout
    assert (tmp_path / "run" / "bundles" / "100000-parameters" / "manifest.json").is_file()
    done = fedfeast("extract", tmp_path / "run", "--max-latency", "1e4")
    assert "ms on this device" in done.stdout
    assert (tmp_path / "run" / "bundles" / "10000-ms").is_dir()


def test_export_one_file_and_verify_it(fedfeast: Command, trained: Path, tmp_path: Path) -> None:
    done = fedfeast("export", trained, "--max-macs", "6e5", "--out", tmp_path / "model.onnx")
    assert done.code == 0, done.stderr
    assert "545.9k MACs, 48,578 parameters, test accuracy" in done.stdout
    assert "model.onnx (within " in done.stdout
    checked = fedfeast("verify", tmp_path / "model.onnx")
    assert (checked.code, checked.stderr) == (0, "")
    assert "the file matches its hash" in checked.stdout


def test_export_a_ladder_and_verify_it(fedfeast: Command, trained: Path, tmp_path: Path) -> None:
    done = fedfeast("export", trained, "--ladder", "2", "--int8", "--out", tmp_path / "models")
    assert done.code == 0, done.stderr
    for part in ("01-128.3k", "02-4.975M", "in int8", "model.onnx, model.int8.onnx in each folder"):
        assert part in done.stdout
    checked = fedfeast("verify", tmp_path / "models")
    assert checked.stdout.count("model.onnx predicts all 16 samples as before") == 2
    as_json = json.loads(fedfeast("verify", tmp_path / "models", "--json").stdout)
    assert [one["macs"] for one in as_json] == [128_320, 4_974_848]


def test_export_for_budgets_in_json(fedfeast: Command, trained: Path, tmp_path: Path) -> None:
    words = ("--budgets", "2e5,6e5,5.5e5", "--format", "pt2", "--json", "--out", tmp_path / "models")
    done = fedfeast("export", trained, *words)
    assert done.code == 0, done.stderr
    index = json.loads(done.stdout)
    assert [rung["budgets_macs"] for rung in index["rungs"]] == [[2e5], [5.5e5, 6e5]]
    assert (tmp_path / "models" / index["rungs"][1]["folder"] / "model.pt2").is_file()


def test_latency_draws_and_tells(fedfeast: Command, trained: Path, tmp_path: Path) -> None:
    copytree(trained, tmp_path / "run")
    done = fedfeast("latency", tmp_path / "run", "--threads", "1", "--repeats", "3")
    assert done.code == 0, done.stderr
    assert "4.975M" in done.stdout
    assert (tmp_path / "run" / "latency.png").read_bytes().startswith(b"\x89PNG")
    assert "latency of one image (ms)" in (tmp_path / "run" / "latency.svg").read_text()
    assert len(json.loads((tmp_path / "run" / "latency.json").read_text())["points"]) == 8
    as_json = fedfeast("latency", tmp_path / "run", "--repeats", "1", "--json")
    assert json.loads(as_json.stdout)["repeats"] == 1
    (tmp_path / "run" / "summary.json").unlink()
    refused = fedfeast("latency", tmp_path / "run")
    assert refused.code == 2
    assert "has no measured curve of its best round: run fedfeast evaluate" in refused.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["extract", "/nowhere", "--max-macs", "1e6"], "/nowhere is no run folder"),
        (["export", "/nowhere", "--max-macs", "1e6", "--out", "OUT"], "/nowhere is no run folder"),
        (["latency", "/nowhere"], "/nowhere is no run folder"),
        (["verify", "/nowhere"], "/nowhere does not exist"),
        (["verify", "RUN"], "is no bundle"),
        (["export", "RUN", "--out", "OUT"], "no limit was given"),
        (["export", "RUN", "--max-macs", "1e3", "--out", "OUT"], "no served variant fits 1000 MACs"),
        (["export", "RUN", "--budgets", "1e3,1e6", "--out", "OUT"], "no served variant fits 1000 MACs"),
        (["export", "RUN", "--budgets", "1e6,much", "--out", "OUT"], "'1e6,much' is no list of numbers"),
        (["export", "RUN", "--ladder", "0", "--out", "OUT"], "--ladder 0: give at least 1"),
        (["export", "RUN", "--ladder", "3", "--max-macs", "1e6", "--out", "OUT"], "exclude each other"),
        (["export", "RUN", "--max-macs", "1e6", "--opset", "99", "--out", "OUT.onnx"], "--opset 99: onnxruntime"),
        (["export", "RUN", "--max-macs", "1e6", "--format", "tflite", "--out", "OUT"], "--format tflite: choose of"),
        (["export", "RUN", "--max-macs", "1e6", "--int8", "--out", "OUT.pt2"], "is one file"),
        (["extract", "RUN", "--max-latency", "1e-9", "--out", "OUT"], "takes at most 1e-09 ms on this device"),
        (["extract", "RUN", "--max-latency", "1", "--search", "--out", "OUT"], "--search counts costs"),
    ],
)
def test_bad_input_is_one_sentence(
    fedfeast: Command, trained: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    places = {"RUN": str(trained), "OUT": str(tmp_path / "out")}
    done = fedfeast(*(places.get(word, word.replace("OUT", places["OUT"])) for word in words))
    assert done.code == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_bundle_and_a_run_without_rounds(fedfeast: Command, trained: Path, tmp_path: Path) -> None:
    fedfeast("extract", trained, "--max-macs", "2e5", "--out", tmp_path / "bundle")
    content = bytearray((tmp_path / "bundle" / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "bundle" / "weights.safetensors").write_bytes(content)
    done = fedfeast("verify", tmp_path / "bundle")
    assert (done.code, done.stdout) == (2, "")
    assert "weights.safetensors does not match its hash in the manifest: extract the bundle again." in done.stderr
    package.Run.create("digits", tmp_path / "run")
    for words in (("latency",), ("extract", "--max-macs", "1e6"), ("export", "--ladder", "2", "--out", "out")):
        done = fedfeast(words[0], tmp_path / "run", *words[1:])
        assert done.code == 2
        assert "has no validated round yet" in done.stderr


def test_missing_packages_are_said(
    fedfeast: Command, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = fedfeast("export", trained, "--max-macs", "1e6", "--out", tmp_path / "model.onnx")
    assert done.code == 2
    assert "pip install 'fedfeast[export]'" in done.stderr
    assert fedfeast("extract", trained, "--max-macs", "2e5", "--out", tmp_path / "bundle").code == 0
    assert fedfeast("export", trained, "--max-macs", "2e5", "--out", tmp_path / "model.pt2").code == 0


def test_untrained_weights_are_warned_of(fedfeast: Command, tmp_path: Path) -> None:
    package.train("digits", tmp_path / "run", {**SHORT, "population.greatest_macs": 2e6})
    done = fedfeast("extract", tmp_path / "run", "--max-macs", "5e6", "--json")
    assert "of this network's weights were never trained" in done.stderr
    assert json.loads(done.stdout)["untrained_share"] > 0.3
