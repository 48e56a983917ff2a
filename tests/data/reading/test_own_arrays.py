from typing import Any

import numpy as np
import pytest

from fedfeast.data.reading.options import PrepareOptions
from fedfeast.data.reading.own_arrays import OwnArrays, decode_own
from fedfeast.errors import InvalidInput

NUMBERS = np.arange(60, dtype=np.float64).reshape(20, 3)
CLASSES = np.arange(20) % 2
CLIENTS = np.array(["ann", "bob", "ann", "cy"] * 5)
TOKENS = np.arange(80).reshape(20, 4) % 7


def own(inputs: Any = NUMBERS, labels: Any = CLASSES, clients: Any = CLIENTS, test: Any = None) -> OwnArrays:
    return OwnArrays("mine.npz", np.asarray(inputs), np.asarray(labels), clients, test)


def parts(arrays: OwnArrays, **options: Any) -> dict[str, np.ndarray]:
    return {split: inputs for split, _, inputs in decode_own(arrays, PrepareOptions(**options)).inputs}


def test_a_share_of_every_client_is_held_out() -> None:
    decoded = decode_own(own(), PrepareOptions())
    assert decoded.client_names == ("ann", "bob", "cy")
    assert np.bincount(decoded.clients["test"]).tolist() == [2, 1, 1]
    assert np.bincount(decoded.clients["train"]).tolist() == [8, 4, 4]
    for split, _, inputs in decoded.inputs:
        rows = inputs[:, 0].astype(int) // 3
        assert np.array_equal(decoded.labels[split], CLASSES[rows])
        assert [decoded.client_names[one] for one in decoded.clients[split]] == CLIENTS[rows].tolist()
    facts = decoded.facts
    assert (facts.kind, facts.task, facts.shape, facts.clients, facts.classes) == (
        "numbers",
        "classification",
        (3,),
        3,
        2,
    )
    assert decoded.dtype == "float32"


def test_the_draw_depends_on_seed_and_client_alone() -> None:
    first, again, other = parts(own()), parts(own()), parts(own(), seed=1)
    assert np.array_equal(first["test"], again["test"])
    assert not np.array_equal(first["test"], other["test"])
    more = np.concatenate([NUMBERS, -NUMBERS[:6]])
    grown = parts(own(more, np.arange(26) % 2, np.array([*CLIENTS, *["cy"] * 6])))
    kept = {tuple(row) for row in first["test"].tolist() if CLIENTS[int(row[0]) // 3] != "cy"}
    assert kept <= {tuple(row) for row in grown["test"].tolist()}


@pytest.mark.parametrize("marks", [[True, False], [1, 0], ["test", "train"], ["True", "False"]])
def test_named_test_examples(marks: list[Any]) -> None:
    assert np.array_equal(parts(own(test=np.repeat(marks, [5, 15])))["test"], NUMBERS[:5])


def test_without_clients_a_share_of_every_class_is_held_out() -> None:
    decoded = decode_own(own(clients=None, labels=["a"] * 15 + ["b"] * 5), PrepareOptions())
    assert decoded.client_names == ()
    assert np.bincount(decoded.labels["test"]).tolist() == [3, 1]
    assert decoded.class_names == ("a", "b")


def test_whole_numbers_as_clients_and_classes_keep_their_names() -> None:
    decoded = decode_own(own(labels=CLASSES * 5 + 2, clients=np.arange(20) % 10 + 5), PrepareOptions())
    assert decoded.client_names == tuple(map(str, range(5, 15))), "in the order of numbers, not of words"
    assert decoded.class_names == ("2", "7")


def test_kinds_of_inputs() -> None:
    grey = np.zeros((20, 8, 8), np.uint8)
    for inputs, shape in (
        (grey, (1, 8, 8)),
        (grey[:, None], (1, 8, 8)),
        (np.zeros((20, 8, 8, 3), np.uint8), (3, 8, 8)),
    ):
        facts = decode_own(own(inputs), PrepareOptions()).facts
        assert (facts.kind, facts.input_shape) == ("images", shape)
    for numbers, dtype in ((NUMBERS.astype(np.int16), "int16"), (np.ones((20, 3, 5), bool), "float32")):
        decoded = decode_own(own(numbers), PrepareOptions())
        assert (decoded.facts.kind, decoded.dtype) == ("numbers", dtype)
    assert decode_own(own(grey), PrepareOptions(kind="numbers")).facts.shape == (8, 8)
    tokens = decode_own(own(TOKENS), PrepareOptions(kind="tokens")).facts
    assert (tokens.kind, tokens.vocabulary, tokens.classes, tokens.input_shape) == ("tokens", 7, 2, (4,))


def test_tasks() -> None:
    following = np.roll(TOKENS, -1, axis=1).astype(np.int64)
    following[:, -1] = -1
    decoded = decode_own(own(TOKENS, following), PrepareOptions(task="next-token"))
    assert (decoded.facts.kind, decoded.facts.classes, decoded.facts.label_shape) == ("tokens", 7, (4,))
    assert decoded.dtype == "uint8"
    both = np.stack([CLASSES, 1 - CLASSES], axis=1)
    decoded = decode_own(own(labels=both), PrepareOptions(task="multi-label"))
    assert (decoded.facts.classes, decoded.labels["train"].dtype.name) == (2, "uint8")
    decoded = decode_own(own(labels=CLASSES / 3), PrepareOptions(task="regression"))
    assert (decoded.facts.classes, decoded.labels["train"].dtype.name) == (1, "float32")
    assert decoded.labels["train"].shape == (16, 1)


def broken(value: float) -> np.ndarray:
    inputs = NUMBERS.copy()
    inputs[7, 1] = value
    return inputs


@pytest.mark.parametrize(
    ("arrays", "options", "sentence"),
    [
        (own(labels=CLASSES[1:]), {}, r"inputs of shape \(20, 3\) but labels of shape \(19,\)"),
        (own(clients=CLIENTS[:-1]), {}, r"but clients of shape \(19,\)"),
        (own(NUMBERS[:1], CLASSES[:1], None), {}, "fewer than two examples"),
        (own(NUMBERS[:, 0]), {}, r"inputs of mine.npz have shape \(20,\)"),
        (own(NUMBERS.astype(str)), {}, "inputs of mine.npz are text: give an array of numbers"),
        (own(NUMBERS.astype(object)), {}, "inputs of mine.npz are Python objects"),
        (own(NUMBERS * 1j), {}, "complex numbers"),
        (own(broken(np.nan)), {}, r"NaN or infinity \(first in example 7\)"),
        (own(broken(-np.inf)), {}, r"NaN or infinity \(first in example 7\)"),
        (own(broken(1e300)), {}, "numbers beyond 3e38"),
        (own(), {"kind": "images"}, r"float64 of shape \(20, 3\): images are uint8 squares"),
        (own(), {"kind": "tokens"}, "tokens are whole numbers of shape"),
        (own(TOKENS - 1), {"kind": "tokens"}, "hold the token -1: number tokens from 0"),
        (own(TOKENS * 10**6), {"kind": "tokens"}, "hold the token 6000000"),
        (own(labels=CLASSES / 2), {}, "labels of mine.npz are float64: classes are whole numbers or text"),
        (own(labels=np.ones((20, 2), int)), {}, r"labels of mine.npz have shape \(20, 2\): a class an example"),
        (own(labels=CLASSES * 0), {}, r"of one class only \(0\)"),
        (own(labels=[""] + ["a"] * 19), {}, "labels of mine.npz lack one in example 0"),
        (own(labels=[f"{one / 8}" for one in range(20)]), {}, "numbers like 2.375, most of them once: say --task regr"),
        (own(labels=CLASSES.astype(object)), {}, "labels of mine.npz are Python objects"),
        (own(TOKENS), {"task": "next-token"}, r"next tokens are whole numbers of the shape \(20, 4\)"),
        (own(TOKENS, TOKENS - 2), {"task": "next-token"}, "labels of mine.npz hold the token -2"),
        (own(labels=CLASSES + 1), {"task": "multi-label"}, "other values than 0 and 1"),
        (own(labels=["a"] * 20), {"task": "regression"}, "are text: --task regression needs numbers"),
        (own(labels=np.ones((20, 2, 2))), {"task": "regression"}, r"have shape \(20, 2, 2\)"),
        (own(labels=broken(np.nan)), {"task": "regression"}, r"labels of mine.npz hold NaN .*example 7"),
        (own(clients=CLASSES / 2), {}, "clients of mine.npz are fractions"),
        (own(clients=np.array(["ann"] * 20)), {}, r"one client only \(ann\)"),
        (own(clients=np.array(["ann", " "] * 10)), {}, "example 1 of mine.npz has an empty client name"),
        (own(clients=np.arange(20)), {}, "no client or class of mine.npz has two examples"),
        (own(test=np.array(["ann"] * 20)), {}, "test column of mine.npz holds 'ann'"),
        (own(test=np.zeros(20)), {}, "holds '0.0': write test or train"),
        (own(test=np.zeros(20, bool)), {}, "all examples of mine.npz are for training"),
        (own(test=CLIENTS == "cy"), {}, "client 'cy' in mine.npz has no training example"),
    ],
)
def test_bad_arrays_are_one_sentence(arrays: OwnArrays, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence) as caught:
        decode_own(arrays, PrepareOptions(**options))  # type: ignore[arg-type]
    assert str(caught.value).endswith(".")
