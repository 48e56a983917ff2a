import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from run_files import forget_sizes

import fedfeast as package
from fedfeast.machine import is_loopback

Command = Callable[..., CompletedProcess[str]]


def test_extract_one_bundle(fedfeast: Command, trained: Path, copied: Path, tmp_path: Path) -> None:
    done = fedfeast("extract", trained, "--max-macs", "6e5", "--out", tmp_path / "bundle", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["macs"] == 545_920
    done = fedfeast("extract", copied, "--max-params", "1e5")
    assert "48,578 parameters, test accuracy" in done.stdout
    assert (copied / "bundles" / "100000-parameters" / "manifest.json").is_file()
    done = fedfeast("extract", copied, "--max-latency", "1e4")
    assert "ms on this device" in done.stdout
    assert (copied / "bundles" / "10000-ms").is_dir()


def test_export_one_file_and_verify_it(fedfeast: Command, trained: Path, tmp_path: Path) -> None:
    done = fedfeast("export", trained, "--max-macs", "6e5", "--out", tmp_path / "model.onnx")
    assert done.returncode == 0, done.stderr
    assert "545.9k MACs, 48,578 parameters, test accuracy" in done.stdout
    assert "model.onnx (within " in done.stdout
    checked = fedfeast("verify", tmp_path / "model.onnx")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "the file matches its hash" in checked.stdout


def test_export_a_ladder_and_verify_it(fedfeast: Command, trained: Path, tmp_path: Path) -> None:
    done = fedfeast("export", trained, "--ladder", "2", "--int8", "--out", tmp_path / "models")
    assert done.returncode == 0, done.stderr
    for part in ("01-128.3k", "02-4.975M", "in int8", "model.onnx, model.int8.onnx in each folder"):
        assert part in done.stdout
    (tmp_path / "models" / "01-128.3k" / "a\n\x1b[31mb").touch()
    checked = fedfeast("verify", tmp_path / "models")
    assert checked.stdout.count("model.onnx predicts all 16 samples as before") == 2
    assert "not in the manifest: a\\n\\x1b[31mb" in checked.stdout
    assert "\x1b" not in checked.stdout
    as_json = json.loads(fedfeast("verify", tmp_path / "models", "--json").stdout)
    assert [one["macs"] for one in as_json] == [128_320, 4_974_848]


def test_a_small_ladder_and_a_small_bundle(fedfeast: Command, trained: Path, copied: Path, tmp_path: Path) -> None:
    words = ("--format", "safetensors", "--float16", "--drawn-samples", "--out", tmp_path / "models")
    done = fedfeast("export", trained, "--ladder", "2", *words)
    assert done.returncode == 0, done.stderr
    assert "files    weights.safetensors in each folder" in done.stdout
    assert "float16" in (tmp_path / "models" / "README.md").read_text()
    checked = fedfeast("verify", tmp_path / "models")
    assert checked.stdout.count("torch predicts all 16 samples as before") == 2
    done = fedfeast("extract", copied, "--max-macs", "2e5", "--float16", "--drawn-samples")
    assert "7,730 parameters in float16, test accuracy" in done.stdout
    assert "rounded  to float16: outputs of the samples moved by at most " in done.stdout
    manifest = json.loads((copied / "bundles" / "200000-MACs-float16-drawn-samples" / "manifest.json").read_text())
    assert (manifest["weights"], "samples_from" in manifest) == ("float16", True)
    done = fedfeast("export", trained, "--max-macs", "2e5", "--float16", "--json", "--out", tmp_path / "bundle")
    assert (json.loads(done.stdout)["weights"], "samples_from" in json.loads(done.stdout)) == ("float16", False)


def test_export_for_budgets_in_json(fedfeast: Command, trained: Path, tmp_path: Path) -> None:
    words = ("--budgets", "2e5,6e5,5.5e5", "--format", "pt2", "--json", "--out", tmp_path / "models")
    done = fedfeast("export", trained, *words)
    assert done.returncode == 0, done.stderr
    index = json.loads(done.stdout)
    assert [rung["budgets_macs"] for rung in index["rungs"]] == [[2e5], [5.5e5, 6e5]]
    assert (tmp_path / "models" / index["rungs"][1]["folder"] / "model.pt2").is_file()


def validate_as(folder: Path, *values: float) -> Path:
    """Let the networks of a run have validated as told, from the smallest to the largest."""
    summary = json.loads((folder / "summary.json").read_text())
    rows = [{**row, "value": value} for row, value in zip(summary["validation_curve"], values, strict=False)]
    figures = [{**row, "accuracy": row["value"], "figures": {"accuracy": row["value"]}} for row in rows]
    (folder / "summary.json").write_text(json.dumps({**summary, "validation_curve": figures}))
    return folder


def test_a_smaller_network_that_validates_better_is_offered(fedfeast: Command, copied: Path, tmp_path: Path) -> None:
    run = validate_as(copied, 0.2, 0.9, 0.3, 0.5)
    better = "257.3k MACs has the better validation accuracy, 90.00 % against 50.00 %: --best takes it"
    done = fedfeast("extract", run, "--max-macs", "6e5")
    assert f"better   the smaller network of {better}\n" in done.stdout
    done = fedfeast("export", run, "--max-macs", "6e5", "--out", tmp_path / "model.pt2")
    assert better in done.stdout
    best = fedfeast("extract", run, "--max-macs", "6e5", "--best")
    assert best.stdout.startswith("257.3k MACs")
    assert "better" not in best.stdout
    assert (run / "bundles" / "600000-MACs-best").is_dir()
    done = fedfeast("export", run, "--max-macs", "6e5", "--best", "--json", "--out", tmp_path / "best.pt2")
    assert (json.loads(done.stdout)["macs"], json.loads(done.stdout)["chosen_by"]) == (257_344, "best")
    done = fedfeast("extract", run, "--max-macs", "6e5", "--search")
    assert "better   the run's network of 257.3k MACs has the better validation accuracy, 90.00 %" in done.stdout


def test_a_ladder_of_the_best(fedfeast: Command, copied: Path, tmp_path: Path) -> None:
    run, words = validate_as(copied, 0.2, 0.9, 0.3, 0.5), ("--budgets", "3e5,4e5,6e5", "--format", "pt2")
    done = fedfeast("export", run, *words, "--out", tmp_path / "models")
    told = "better   smaller networks validate better than 02-347.3k, 03-545.9k: --best leaves these out"
    assert told in done.stdout
    done = fedfeast("export", run, *words, "--best", "--json", "--out", tmp_path / "best")
    assert [rung["budgets_macs"] for rung in json.loads(done.stdout)["rungs"]] == [[3e5, 4e5, 6e5]]


def test_nothing_is_best_where_nothing_was_validated(
    refused: Callable[..., None], copied: Path, tmp_path: Path
) -> None:
    (copied / "summary.json").unlink()
    forget_sizes(copied)
    sentence = f"--best goes by what every size comes to on the validation examples, and {copied} has no such figures"
    for words in (["--max-macs", "6e5"], ["--max-macs", "6e5", "--search"], ["--ladder", "2"]):
        refused(sentence, "export", copied, *words, "--best", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_latency_draws_and_tells(fedfeast: Command, copied: Path) -> None:
    done = fedfeast("latency", copied, "--threads", "1", "--repeats", "3")
    assert done.returncode == 0, done.stderr
    assert "4.975M" in done.stdout
    assert (copied / "latency.png").read_bytes().startswith(b"\x89PNG")
    assert "latency of one example (ms)" in (copied / "latency.svg").read_text()
    assert len(json.loads((copied / "latency.json").read_text())["points"]) == 8
    as_json = fedfeast("latency", copied, "--repeats", "1", "--json")
    assert json.loads(as_json.stdout)["repeats"] == 1
    (copied / "summary.json").unlink()
    refused = fedfeast("latency", copied)
    assert refused.returncode == 2
    assert "has no measured curve of its best round: run fedfeast evaluate" in refused.stderr


def test_latencies_measured_elsewhere(fedfeast: Command, copied: Path, tmp_path: Path) -> None:
    measured = tmp_path / "phones.csv"
    measured.write_text("model,device,latency_ms\n128.3k,[old] phone,40\n128.3k,phone,2\n545.9k,phone,6\n")
    done = fedfeast("latency", copied, "--measured", measured, "--max-latency", "5")
    assert done.returncode == 0, done.stderr
    for part in ("[old] phone", "phone", "the largest within 5 ms", "from 40 ms", "latency-devices.png"):
        assert part in done.stdout
    assert (copied / "latency-devices.png").read_bytes().startswith(b"\x89PNG")
    assert "[old] phone" in (copied / "latency-devices.svg").read_text()
    assert not (copied / "latency.json").exists(), "what was measured elsewhere is not this machine's"
    as_json = json.loads(fedfeast("latency", copied, "--measured", measured, "--json").stdout)
    assert [one["device"] for one in as_json["devices"]] == ["[old] phone", "phone"]
    words = ("--max-latency", "5", "--measured", measured, "--device", "phone")
    done = fedfeast("extract", copied, *words, "--out", tmp_path / "bundle")
    assert done.returncode == 0, done.stderr
    assert "128.3k MACs" in done.stdout
    assert "2 ms on phone" in done.stdout


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
        (["export", "RUN", "--max-macs", "1e6", "--float16", "--out", "OUT.pt2"], "is one file in float32"),
        (["export", "RUN", "--max-macs", "1e6", "--drawn-samples", "--out", "OUT.onnx"], "is one file without samples"),
        (
            ["export", "RUN", "--max-macs", "1e6", "--format", "safetensors", "--out", "OUT.onnx"],
            "--format safetensors is a bundle alone",
        ),
        (
            ["export", "RUN", "--ladder", "2", "--format", "safetensors", "--normalised", "--out", "OUT"],
            "--normalised is for exported files",
        ),
        (["export", "RUN", "--max-macs", "1e6", "--out", "OUT.tflite"], "ends in .tflite, which is not written"),
        (["export", "RUN", "--ladder", "2", "--out", "OUT.tflite"], "ends in .tflite, which is not written"),
        (["extract", "RUN", "--max-macs", "1e6", "--out", "OUT.pth"], "ends in .pth, which is not written"),
        (["extract", "RUN", "--max-latency", "1e-9", "--out", "OUT"], "takes at most 1e-09 ms on this device"),
        (["extract", "RUN", "--max-latency", "1", "--search", "--out", "OUT"], "--search counts costs"),
        (
            ["export", "RUN", "--max-macs", "1e6", "--format", "litert", "--out", "OUT"],
            "--format litert is not written",
        ),
        (["latency", "RUN", "--measured", "OUT.csv"], "out.csv cannot be read (No such file or directory)"),
        (["latency", "RUN", "--max-latency", "5"], "--max-latency chooses for the devices of --measured"),
        (["extract", "RUN", "--max-latency", "5", "--device", "phone"], "give that file as --measured"),
        (["extract", "RUN", "--max-macs", "1e6", "--measured", "OUT.csv"], "say --max-latency"),
        (["serve", "FOLDER", "--port", "0", "--browser-runtime", "FOLDER"], "of onnxruntime-web (No such file"),
        (["browser-runtime", "--archive", "OUT.tgz"], "out.tgz is no archive of onnxruntime-web@"),
        (["serve", "FOLDER", "--port", "0"], "is no run folder (it has no recipe.toml)"),
        (["serve", "FOLDER", "--port", "99999"], "--port 99999: give a number from 0"),
        (["serve", "FOLDER", "--token", "", "--port", "0"], "--token must be printable"),
    ],
)
def test_bad_input_is_one_sentence(
    refused: Callable[..., None], trained: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    places = {"RUN": str(trained), "OUT": str(tmp_path / "out"), "FOLDER": str(tmp_path)}
    refused(sentence, *(places.get(word, word.replace("OUT", places["OUT"])) for word in words))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_bundle_and_a_run_without_rounds(fedfeast: Command, trained: Path, tmp_path: Path) -> None:
    fedfeast("extract", trained, "--max-macs", "2e5", "--out", tmp_path / "bundle")
    content = bytearray((tmp_path / "bundle" / "weights.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "bundle" / "weights.safetensors").write_bytes(content)
    done = fedfeast("verify", tmp_path / "bundle")
    assert (done.returncode, done.stdout) == (2, "")
    assert "weights.safetensors does not match its hash in the manifest: extract the bundle again." in done.stderr
    package.Run.create("digits", tmp_path / "run")
    for words in (("latency",), ("extract", "--max-macs", "1e6"), ("export", "--ladder", "2", "--out", "out")):
        done = fedfeast(words[0], tmp_path / "run", *words[1:])
        assert done.returncode == 2
        assert "has no validated round yet" in done.stderr


def test_missing_packages_are_said(
    fedfeast: Command, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = fedfeast("export", trained, "--max-macs", "1e6", "--out", tmp_path / "model.onnx")
    assert done.returncode == 2
    assert "pip install 'fedfeast[export]'" in done.stderr
    assert fedfeast("extract", trained, "--max-macs", "2e5", "--out", tmp_path / "bundle").returncode == 0
    assert fedfeast("export", trained, "--max-macs", "2e5", "--out", tmp_path / "model.pt2").returncode == 0


def test_untrained_weights_are_warned_of(fedfeast: Command, tmp_path: Path, short: list[str]) -> None:
    words = ("train", "digits", "--out", tmp_path / "run", *short, "--set", "population.greatest_macs=2e6")
    assert fedfeast(*words).returncode == 0
    done = fedfeast("extract", tmp_path / "run", "--max-macs", "5e6", "--json")
    assert "of this network's weights were never trained" in done.stderr
    assert json.loads(done.stdout)["untrained_share"] > 0.3


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_who_can_reach_an_address(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


def test_everyone_being_able_to_fetch_is_warned_of(fedfeast: Command, tmp_path: Path) -> None:
    done = fedfeast("serve", tmp_path, "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2
    assert "everyone who reaches 0.0.0.0 can fetch the models: --token keeps others out." in done.stderr
