from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedfeast.data import DatasetFacts, Examples
from fedfeast.errors import InvalidInput
from fedfeast.flower.own_data import check_examples, load_own_data

FACTS = DatasetFacts(classes=4, channels=1, side=8, train_examples=0, test_examples=0)


def draw(path: Path, shade: int, size: int = 8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((size, size), shade, dtype=np.uint8)).save(path)


def test_a_folder_of_class_numbers(tmp_path: Path) -> None:
    draw(tmp_path / "3" / "b.png", 30)
    draw(tmp_path / "0" / "a.png", 10, size=16)
    examples = load_own_data(str(tmp_path), FACTS)
    assert examples.labels.tolist() == [0, 3]
    assert examples.inputs.shape == (2, 1, 8, 8)
    assert set(examples.inputs[1].flatten().tolist()) == {30}


def test_names_of_the_servers_classes_come_first(tmp_path: Path) -> None:
    draw(tmp_path / "dog" / "b.png", 30)
    draw(tmp_path / "cat" / "a.png", 10)
    examples = load_own_data(str(tmp_path), FACTS, ("cat", "dog", "0", "cow"))
    assert examples.labels.tolist() == [0, 1]
    draw(tmp_path / "0" / "a.png", 10)
    assert load_own_data(str(tmp_path), FACTS, ("cat", "dog", "0", "cow")).labels.tolist() == [2, 0, 1]


def test_a_strange_folder_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no images"):
        load_own_data(str(tmp_path), FACTS)
    draw(tmp_path / "7" / "a.png", 1)
    with pytest.raises(InvalidInput, match="like no class of the network"):
        load_own_data(str(tmp_path), FACTS)


@pytest.mark.parametrize(
    "body",
    [
        "return np.zeros((5, 1, 8, 8), np.uint8), np.arange(5) % 4",
        "return np.zeros((5, 8, 8), np.uint8), [0, 1, 2, 3, 0]",
        "return [(np.zeros((1, 8, 8), np.uint8), label % 4) for label in range(5)]",
        "yield from ((np.zeros((8, 8), np.uint8), label % 4) for label in range(5))",
        "return ((np.zeros((8, 8), np.uint8), 0), (np.zeros((8, 8), np.uint8), 1))",
    ],
)
def test_a_function_gives_arrays_or_pairs(tmp_path: Path, body: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"import numpy as np\ndef shots():\n    {body}\n")
    examples = load_own_data(f"{file}:shots", FACTS)
    assert isinstance(examples, Examples)
    assert examples.inputs.shape[1:] == (1, 8, 8)
    assert examples.labels.tolist()[:2] == [0, 1]


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ((np.zeros((2, 1, 9, 9), np.uint8), [0, 1]), "the network takes"),
        ((np.zeros((2, 1, 8, 8)), [0, 1]), "float64"),
        ((np.zeros((2, 1, 8, 8), np.uint8), [0, 4]), "labels"),
        ((np.zeros((0, 1, 8, 8), np.uint8), []), "no examples"),
        ([], "no examples"),
        (3, "gave int"),
    ],
)
def test_examples_that_do_not_suit(found: object, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        check_examples(found, FACTS, "mine.py:shots")


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("nowhere", "neither a folder nor a function"),
        ("nowhere.py:shots", "no Python file"),
        ("no.such.module:shots", "cannot be imported"),
        ("json:shots", "no function 'shots'"),
    ],
)
def test_sources_that_are_not_there(source: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        load_own_data(source, FACTS)


NUMBERS = DatasetFacts(3, 2, 4, 0, 0, kind="numbers", shape=(2, 4))
TOKENS = DatasetFacts(5, 1, 4, 0, 0, kind="tokens", task="next-token", shape=(4,), vocabulary=5)
TARGETS = DatasetFacts(1, 2, 4, 0, 0, kind="numbers", task="regression", shape=(2, 4))
LABELS = DatasetFacts(2, 2, 4, 0, 0, kind="numbers", task="multi-label", shape=(2, 4))


@pytest.mark.parametrize(
    ("facts", "inputs", "labels", "types"),
    [
        (NUMBERS, np.ones((3, 2, 4)), [0, 2, 1], ("float32", "int64")),
        (NUMBERS, np.ones((3, 2, 4), np.uint8), [0, 2, 1], ("uint8", "int64")),
        (TOKENS, np.full((3, 4), 4), np.full((3, 4), -1), ("int64", "int64")),
        (TARGETS, np.ones((3, 2, 4), np.int16), [0.5, 1, 2], ("float32", "float32")),
        (LABELS, np.ones((3, 2, 4)), [[0, 1]] * 3, ("float32", "uint8")),
    ],
)
def test_examples_of_any_kind(facts: DatasetFacts, inputs: Any, labels: Any, types: tuple[str, str]) -> None:
    examples = check_examples((inputs, labels), facts, "mine")
    assert (str(examples.inputs.dtype), str(examples.labels.dtype)) == tuple(f"torch.{name}" for name in types)
    assert (examples.shape, len(examples)) == (facts.input_shape, 3)
    assert tuple(examples.labels.shape[1:]) == facts.label_shape


@pytest.mark.parametrize(
    ("facts", "inputs", "labels", "complaint"),
    [
        (NUMBERS, np.ones((3, 4)), [0, 0, 0], r"inputs of shape \(3, 4\) and float64: the network takes \(3, 2, 4\)"),
        (NUMBERS, np.full((1, 2, 4), np.nan), [0], "inputs that are no finite numbers"),
        (NUMBERS, np.ones((1, 2, 4)), [3], "labels that are no whole numbers from 0 to 2"),
        (TOKENS, np.full((1, 4), 5), np.zeros((1, 4), int), "tokens that are no whole numbers from 0 to 4"),
        (TOKENS, np.zeros((1, 4)), np.zeros((1, 4), int), "takes .* whole numbers"),
        (TOKENS, np.zeros((1, 4), int), [0], r"labels of shape \(1,\): next-token needs \(1, 4\)"),
        (TARGETS, np.ones((1, 2, 4)), [np.inf], "labels that are no finite numbers"),
        (LABELS, np.ones((1, 2, 4)), [[0, 2]], "from 0 to 1"),
    ],
)
def test_examples_that_do_not_suit_the_task(facts: DatasetFacts, inputs: Any, labels: Any, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        check_examples((inputs, labels), facts, "mine")


def test_a_folder_is_for_images_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is a folder, and the network takes tokens for next-token"):
        load_own_data(str(tmp_path), TOKENS)
