import csv
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import onnxruntime
import pytest

Command = Callable[..., CompletedProcess[str]]


@pytest.mark.usefixtures("hurried")
def test_plan_in_json_and_side_by_side(fedfeast: Command) -> None:
    plan = json.loads(fedfeast("plan", "digits", "--json").stdout)
    assert plan["supernet"]["parameters"] == 546_906
    assert plan["time"]["seconds_per_round"] > 0
    both = json.loads(fedfeast("plan", "digits", "--gamma", "0,1", "--json").stdout)["plans"]
    assert [one["gamma"] for one in both] == [0.0, 1.0]
    listed = json.loads(fedfeast("plan", "digits", "--set", "population.gamma=[0, 1]", "--json").stdout)["plans"]
    assert [one["gamma"] for one in listed] == [0.0, 1.0]
    shown = fedfeast("plan", "digits").stdout
    assert "predicted time" in shown
    assert "who is sent what" in shown


@pytest.mark.usefixtures("hurried")
def test_plan_shows_that_it_is_measuring(fedfeast: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfeast.app.progress.PLAIN_EVERY_SECONDS", 0.0)
    shown = fedfeast("plan", "digits").stdout
    assert "timing passes 1/3  128k MACs" in shown
    assert "predicted time here, eager engine, 1 thread" in shown


def test_measure_for_people_and_programs(fedfeast: Command) -> None:
    shown = fedfeast("measure", "--variants", "2", "--threads", "1")
    assert shown.returncode == 0, shown.stderr
    for part in ("digits, feast on", "128.3k", "peak memory", "add --target-ms"):
        assert part in shown.stdout
    content = json.loads(
        fedfeast("measure", "--variants", "2", "--target-ms", "1e4", "--threads", "1", "--json").stdout
    )
    assert content["suggestion"]["target_milliseconds"] == 1e4


def test_measure_prints_what_it_measured_before_a_step_fails(
    fedfeast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedfeast.app.progress.PLAIN_EVERY_SECONDS", 0.0)
    words = ("measure", "--variants", "2", "--threads", "1", "--target-ms", "1e-9")
    done = fedfeast(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --target-ms 1e-09: the smallest network takes ")
    for part in ("measuring 1/6  128.3k MACs in ", "ms an image", "4.975M", "peak memory"):
        assert part in done.stdout
    as_json = fedfeast(*words, "--json")
    assert len(json.loads(as_json.stdout)["variants"]) == 2
    assert as_json.returncode == 2


def test_measure_stopped_halfway_prints_what_it_has(fedfeast: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(onnxruntime.InferenceSession):  # type: ignore[misc] # the package has no types
        """A session that the second network cannot have."""

        made = 0

        def __init__(self, *given: Any, **more: Any) -> None:
            Broken.made += 1
            if Broken.made > 1:
                raise OSError("no memory is left")
            super().__init__(*given, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Broken)
    done = fedfeast("measure", "--variants", "2", "--threads", "1")
    assert done.returncode == 2
    assert "no memory is left" in done.stderr
    assert "measured before it stopped" in done.stdout
    assert "128.3k" in done.stdout


def test_methods_for_people_and_programs(fedfeast: Command) -> None:
    listed = json.loads(fedfeast("methods", "--recipe", "digits", "--json").stdout)
    shown = fedfeast("methods", "--recipe", "digits").stdout
    assert "operating points for digits" in shown
    assert all(f"\n{method['name']}\n" in shown for method in listed)


def test_search_writes_a_cache_and_its_picture(fedfeast: Command, tmp_path: Path) -> None:
    words = ("search", "digits", "--targets", "2e5,1e6", "--out")
    one, same = fedfeast(*words, tmp_path / "one.csv", "--json"), fedfeast(*words, tmp_path / "same.csv")
    assert one.returncode == 0, one.stderr
    assert json.loads(one.stdout)["variants"] == 2
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "same.csv").read_text()
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    assert same.returncode == 0
    assert f"cache              {tmp_path / 'same.csv'}\n" in same.stdout
    assert "repeated targets   []\n" in same.stdout


def test_search_of_a_builder_takes_its_own_sizes(fedfeast: Command, tmp_path: Path) -> None:
    own = ("--set", "network.builder=conv1d", "--set", "network.choices={width=[2,4],depth=[1,2]}")
    fedfeast("search", "digits", *own, "--set", "variants.num_targets=3", "--out", tmp_path / "mine.csv", "--json")
    rows = list(csv.DictReader((tmp_path / "mine.csv").read_text().splitlines()))
    assert [(row["width"], row["depth"]) for row in (rows[0], rows[-1])] == [("2", "1"), ("4", "2")]
    assert (tmp_path / "mine.png").is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["plan", "digits", "--gamma", "1,many"], "population.gamma = 'many'"),
        (["plan", "digits", "--set", "variants.cache=cifar100-56"], "not in the network's space"),
        (["plan", "digits", "--set", "training.clients_per_round=41"], "is more than the 40 clients of the population"),
        (["measure", "--variants", "0"], "--variants 0"),
        (["methods", "--recipe", "digit"], "unknown recipe 'digit'"),
        (["search", "digits", "--targets", "1e6,much", "--out", "/nowhere/x.csv"], "'1e6,much' is no list of numbers"),
        (["search", "digits", "--targets", "10", "--out", "/nowhere/x.csv"], "128320"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], sentence: str, refused: Callable[..., None]) -> None:
    refused(sentence, *words)
