from dataclasses import replace

import numpy as np
import pytest
import torch

from fedfeast.data import Augmentation, Examples, Mixing, Normalisation, Preparation, ShardedExamples
from fedfeast.data.round_batches import BatchRecord
from fedfeast.engines.graphs import mini_batches
from fedfeast.engines.graphs.mini_batches import BatchesAhead, BatchSource
from fedfeast.federation import Client
from fedfeast.population import Shards
from fedfeast.randomness import named_generator

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIZES = (3, 9, 5)
CLIENTS = [Client(index, str(index), 1e6, size) for index, size in enumerate(SIZES)]


def source() -> BatchSource:
    generator, total = named_generator(0, "images"), sum(SIZES)
    images = torch.from_numpy(generator.integers(0, 256, (total, 1, 5, 5)).astype("uint8"))
    pool = Examples(images, torch.from_numpy(generator.integers(0, 4, total))).to(DEVICE)
    examples = ShardedExamples(pool, Shards(np.arange(total), np.cumsum([0, *SIZES])))
    preparation = Preparation(4, 1, Augmentation(1, True), Mixing(), Normalisation((0.5,), (0.25,)))
    return BatchSource(examples, preparation, BatchRecord.of(pool, preparation, torch.float32), 7)


def test_what_is_prepared_ahead_is_what_would_be_made_in_time() -> None:
    made = source()
    ahead, in_time = BatchesAhead(made, DEVICE), BatchesAhead(made, DEVICE)
    ahead.prepare(CLIENTS, 3)
    early, late = ahead.take(CLIENTS, 3), in_time.take(CLIENTS, 3)
    assert late.rows is None
    assert early.rows is not None
    rows = made.make(late.drawn)
    assert early.rows.keys() == rows.keys() == {0, 1, 2}
    for client, size in enumerate(SIZES):
        assert rows[client].shape == (-(-size // 4), made.record.num_bytes)
        one, other = (made.record.batch(each[client]) for each in (early.rows, rows))
        for name in ("inputs", "labels_a", "labels_b", "mix"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name
    for before, now in zip(early.drawn, late.drawn, strict=True):
        assert before.client == now.client
        assert before.generator.integers(2**60) == now.generator.integers(2**60), "passes are drawn next"


@pytest.mark.parametrize(
    ("clients", "round_index"),
    [(CLIENTS, 4), (CLIENTS[:2], 3), (CLIENTS[::-1], 3), ([*CLIENTS[:2], replace(CLIENTS[2], num_examples=4)], 3)],
    ids=["another round", "fewer clients", "another order", "other examples"],
)
def test_another_round_is_drawn_anew(clients: list[Client], round_index: int) -> None:
    ahead = BatchesAhead(source(), DEVICE)
    ahead.prepare(CLIENTS, 3)
    taken = ahead.take(clients, round_index)
    assert taken.are_of(clients, round_index)
    assert taken.rows is None


def test_nothing_is_taken_twice() -> None:
    """The draws of passes go on from where those of mini-batches ended."""
    ahead = BatchesAhead(source(), DEVICE)
    ahead.prepare(CLIENTS, 3)
    first, again = ahead.take(CLIENTS, 3), ahead.take(CLIENTS, 3)
    assert again.drawn[0].generator is not first.drawn[0].generator
    assert first.drawn[0].generator.integers(2**60) == again.drawn[0].generator.integers(2**60)


def test_without_memory_for_it_the_round_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError

    ahead = BatchesAhead(source(), DEVICE)
    with monkeypatch.context() as patched:
        patched.setattr(mini_batches, "make_round", failing)
        ahead.prepare(CLIENTS, 3)
    taken = ahead.take(CLIENTS, 3)
    assert taken.are_of(CLIENTS, 3)
    assert taken.rows is None


def test_nobody_to_come() -> None:
    ahead = BatchesAhead(source(), DEVICE)
    ahead.prepare((), 3)
    assert ahead.take((), 3).drawn == ()
