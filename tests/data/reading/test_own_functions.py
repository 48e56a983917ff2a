from pathlib import Path

import pytest

from fedfeast.data.datasets import array_hashes, class_names_of, facts_of, load_dataset
from fedfeast.data.reading.facts import DatasetFacts
from fedfeast.errors import InvalidInput
from fedfeast.own_code import trust

SOURCE = """
import numpy as np

calls = []

def steps():
    calls.append(1)
    return {
        "inputs": np.arange(40, dtype=np.int16).reshape(10, 2, 2),
        "labels": np.arange(10) / 4,
        "clients": ["ann", "bob"] * 5,
        "task": "regression",
        "test": np.arange(10) >= 8,
    }

def triple():
    return np.zeros((10, 4, 4), np.uint8), ["a", "b"] * 5, np.arange(10) // 5

def misspelled():
    return {"inputs": [[1.0]], "label": [1]}

def unlabelled():
    return {"inputs": [[1.0], [2.0]]}

def ragged():
    return [[1], [1, 2]], [0, 1]

def doubled():
    return {**steps(), "test_share": 0.5}

def one():
    return 1

def gone():
    raise OSError("no such\\n file")

nothing = None
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    """Return the path of trusted code."""
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    trust(f"{path}:steps")
    return str(path)


def test_a_function_is_a_data_set(own: str) -> None:
    name = f"{own}:steps"
    facts = facts_of(name)
    assert facts == DatasetFacts(1, 2, 2, 8, 2, kind="numbers", task="regression", shape=(2, 2), clients=2)
    dataset = load_dataset(name)
    assert dataset.clients is not None
    assert dataset.clients.names == ("ann", "bob")
    assert dataset.clients.train.tolist() == [0, 1] * 4
    assert dataset.test.labels.tolist() == [[2.0], [2.25]]
    assert (len(dataset.train), dataset.classes) == (8, 1)
    assert (class_names_of(name), array_hashes(name)) == (("0",), {})


def test_a_tuple_does_too(own: str) -> None:
    facts = facts_of(f"{own}:triple")
    assert (facts.kind, facts.clients, facts.classes, facts.train_examples) == ("images", 2, 2, 8)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("misspelled", r"gave 'label' \(did you mean 'labels'\?\)"),
        ("unlabelled", "gave no labels"),
        ("ragged", "are no array"),
        ("doubled", "gave test and test_share"),
        ("gone", r"mine.py:gone raised OSError \(no such file\): mend it."),
        ("one", "gave int: return a mapping"),
        ("nothing", "has no function 'nothing'"),
        ("missing", "has no function 'missing'"),
    ],
)
def test_what_gives_no_data_is_one_sentence(own: str, function: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        facts_of(f"{own}:{function}")


def test_code_that_nobody_trusts_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "hers.py"
    path.write_text("raise SystemExit('it ran')\n")
    with pytest.raises(InvalidInput, match=r"names code to run, data.name = .*hers.py:steps"):
        load_dataset(f"{path}:steps")
