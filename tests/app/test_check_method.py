"""fedfeast check-method: a method of one's own by one command."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tiny import TINY, as_words

from fedfeast.runs.contract.checking import RULES

Command = Callable[..., CompletedProcess[str]]
TOO_CHEAP = """
from dataclasses import dataclass, replace
from fedfeast.methods import FedAvg

@dataclass(frozen=True)
class Mine(FedAvg):
    def operating_points(self):
        return tuple(replace(one, macs=one.macs - 1) for one in super().operating_points())
"""


def test_violations_are_told_and_end_with_exit_code_1(fedfeast: Command, tmp_path: Path, another_machine: None) -> None:
    (tmp_path / "mine.py").write_text(TOO_CHEAP)
    words = ("check-method", f"{tmp_path / 'mine.py'}:Mine", *as_words(TINY))
    done = fedfeast(*words)
    assert done.returncode == 1, done.stderr
    assert "violated  The declared cost is the deployed network's.\n" in done.stdout
    assert "kept      Losses look at no values.\n" in done.stdout
    assert done.stdout.endswith(":Mine: 2 violated\n")
    told = json.loads(fedfeast(*words, "--json").stdout)
    assert [rule["rule"] for rule in told["rules"] if rule["violation"]] == ["participants", "cost"]
    assert not (tmp_path / "another-home").exists(), "trusted for this command alone"


def test_a_method_of_the_package_keeps_them_all(fedfeast: Command) -> None:
    done = fedfeast("check-method", "fedavg", *as_words(TINY))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("kept  ") == len(RULES)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fedavgg"], "check-method 'fedavgg' names no method"),
        (["gone.py:Mine"], "check-method names the file gone.py, which is no Python file here"),
        (["fedavg", "--recipe", "digit"], "unknown recipe 'digit'"),
        (["fedavg", "--set", "method.name=feast"], "method.name is set, and the method to check is fedavg"),
        (["fedavg", "--set", "method.width=1"], "method.width"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], sentence: str, refused: Callable[..., None]) -> None:
    refused(sentence, "check-method", *words)
