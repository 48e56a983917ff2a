"""What readers hand over says its own facts."""

import numpy as np

from fedfeast.data.reading.decoded import decoded_arrays


def test_arrays_say_their_own_facts() -> None:
    images = np.zeros((5, 3, 8, 8), np.uint8)
    facts = decoded_arrays("ab", {"train": (images, np.zeros(5)), "test": (images[:2], np.zeros(2))}).facts
    assert (facts.classes, facts.channels, facts.side, facts.shape) == (2, 3, 8, ())
    assert (facts.train_examples, facts.test_examples, facts.server_examples, facts.clients) == (5, 2, 0, 0)


def test_of_tokens_and_numbers_the_shape_is_told() -> None:
    tokens = np.zeros((5, 7), np.int16)
    clients = (["ada", "bob"], {"train": np.zeros(5, np.int64), "test": np.zeros(5, np.int64)})
    splits = {split: (tokens, tokens.astype(np.int64)) for split in ("train", "test")}
    decoded = decoded_arrays("abc", splits, clients, kind="tokens", task="next-token", vocabulary=3)
    assert (decoded.facts.channels, decoded.facts.side, decoded.facts.input_shape) == (1, 7, (7,))
    assert (decoded.facts.vocabulary, decoded.facts.clients, decoded.dtype) == (3, 2, "int16")
    waves = np.zeros((4, 6, 9), np.float32)
    numbers = decoded_arrays("ab", {"train": (waves, np.zeros(4)), "test": (waves, np.zeros(4))}, kind="numbers")
    assert (numbers.facts.channels, numbers.facts.side, numbers.facts.shape) == (6, 9, (6, 9))
