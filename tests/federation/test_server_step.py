from collections.abc import Iterator
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation import Merged, ServerOptimiser, State
from fedfeast.randomness import named_generator

ROUNDS, POSITIONS = 14, 6
NEVER, RARE = 5, 4  # a position that nobody ever routes, and one that is routed in every fifth round
OPTIMISERS: dict[str, ServerOptimiser] = {
    "plain": ServerOptimiser(),
    "momentum": ServerOptimiser("momentum", learning_rate=0.7, momentum=0.8),
    "adam": ServerOptimiser("adam", learning_rate=0.05, betas=(0.8, 0.95), epsilon=1e-2),
    "lookahead": ServerOptimiser(lookahead=0.8),
    "average": ServerOptimiser(average=0.75),
    "adam and average": ServerOptimiser("adam", average=0.75),
    "lookahead and average": ServerOptimiser(lookahead=0.5, average=0.9),
}


def rounds() -> Iterator[tuple[Tensor, Tensor]]:
    """Yield by how much clients moved what they were sent, and where they answered."""
    generator = named_generator(0, "rounds")
    for number in range(ROUNDS):
        answered = torch.from_numpy(generator.random(POSITIONS) < 0.7)
        answered[NEVER], answered[RARE] = False, number % 5 == 2
        yield torch.from_numpy(generator.normal(0, 0.1, POSITIONS)), answered


def stepped(server: ServerOptimiser) -> Iterator[tuple[Tensor, Tensor, State, Tensor]]:
    """Yield after every round what was sent, the vector, the state, and where anybody answered."""
    flat = torch.linspace(-1, 1, POSITIONS, dtype=torch.float64)
    state = server.initial_state(flat)
    for change, answered in rounds():
        sent = server.sent(state, flat)
        assert torch.equal(server.sent(state, flat), sent), "who is asked again gets the same"
        merged = torch.where(answered, sent + change, sent)
        flat, state = server.server_step(state, flat, Merged(sent, merged, answered))
        yield sent, flat, state, answered


class OnePosition:
    """What a server does, for one number, as the papers write it."""

    def __init__(self, server: ServerOptimiser, value: float) -> None:
        self.server, self.value, self.last = server, value, value
        self.velocity = self.mean = self.square = 0.0
        self.count = 0

    def step(self, change: float, answered: bool) -> float:
        server, before = self.server, self.value
        sent = self.value + server.lookahead * (self.value - self.last)
        if answered and server.lookahead:
            self.value = sent + change
        elif answered and server.optimiser == "momentum":
            self.velocity = server.momentum * self.velocity + change
            self.value += server.rate * self.velocity
        elif answered and server.optimiser == "adam":
            first, second = server.betas
            self.count += 1
            self.mean = first * self.mean + (1 - first) * change
            self.square = second * self.square + (1 - second) * change**2
            mean, square = self.mean / (1 - first**self.count), self.square / (1 - second**self.count)
            self.value += server.rate * mean / (sqrt(square) + server.epsilon)
        elif answered:
            self.value += change
        self.last = before
        return sent


@pytest.mark.parametrize("name", OPTIMISERS)
def test_every_position_is_stepped_as_the_papers_write_it(name: str) -> None:
    server = OPTIMISERS[name]
    slow = [OnePosition(server, value) for value in np.linspace(-1, 1, POSITIONS)]
    for (sent, flat, _, answered), (change, _) in zip(stepped(server), rounds(), strict=True):
        expected = [one.step(float(change[at]), bool(answered[at])) for at, one in enumerate(slow)]
        assert sent.tolist() == pytest.approx(expected, abs=1e-12)
        assert flat.tolist() == pytest.approx([one.value for one in slow], abs=1e-12)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_what_nobody_answered_neither_moves_nor_remembers(name: str) -> None:
    server = OPTIMISERS[name]
    earlier_flat, earlier = torch.linspace(-1, 1, POSITIONS, dtype=torch.float64), None
    for sent, flat, state, answered in stepped(server):
        assert torch.equal(flat[~answered], earlier_flat[~answered])
        assert flat[NEVER] == sent[NEVER] == 1.0
        assert not torch.equal(flat[answered], earlier_flat[answered])
        own = {key: one for key, one in state.items() if key in ("velocity", "mean", "square", "count")}
        for key, one in own.items():
            assert earlier is None or torch.equal(one[~answered], earlier[key][~answered])
        earlier_flat, earlier = flat, state
        if server.lookahead:
            # What this round did not move is sent as it is in the next.
            assert torch.equal(server.sent(state, flat)[~answered], flat[~answered])
    if server.optimiser == "adam":
        assert earlier is not None
        assert earlier["count"].tolist()[RARE:] == [3, 0]


def test_by_default_the_merged_vector_itself_is_the_next() -> None:
    server, flat = ServerOptimiser(), torch.ones(3)
    merged = Merged(flat, torch.zeros(3), torch.ones(3, dtype=torch.bool))
    assert server.initial_state(flat) == {}
    assert server.sent({}, flat) is flat
    after, state = server.server_step({}, flat, merged)
    assert after is merged.flat
    assert state == {}
    assert server.averaged(state) is None
    assert server.num_vectors == 0


def test_the_average_begins_with_the_first_round_and_forgets_faster_at_first() -> None:
    server, average = ServerOptimiser(average=0.5), None
    kept = [0, 1 / 10, 2 / 11, 3 / 12, 4 / 13, 5 / 14, 6 / 15, 7 / 16, 8 / 17, 0.5, 0.5, 0.5, 0.5, 0.5]
    for share, (_, flat, state, _) in zip(kept, stepped(server), strict=True):
        average = flat if average is None else share * average + (1 - share) * flat
        found = server.averaged(state)
        assert found is not None
        torch.testing.assert_close(found, average, rtol=0, atol=1e-12)
    assert int(state["averaged"]) == ROUNDS


def test_what_is_kept_is_as_long_as_the_vector_and_there_from_the_start() -> None:
    flat = torch.zeros(POSITIONS)
    for server in OPTIMISERS.values():
        state = server.initial_state(flat)
        assert sum(one.numel() == POSITIONS for one in state.values()) == server.num_vectors
        after, later = server.server_step(state, flat, Merged(flat, flat + 1, flat == 0))
        assert {key: (one.shape, one.dtype) for key, one in later.items()} == {
            key: (one.shape, one.dtype) for key, one in state.items()
        }
        assert after.dtype == flat.dtype


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"momentum": 1.0}, r"server.momentum = 1.0: give a number from 0 to below 1"),
        ({"lookahead": -0.1}, r"server.lookahead = -0.1: give"),
        ({"average": 1.5}, r"server.average = 1.5: give"),
        ({"betas": (0.9, 1.0)}, r"server.betas = \[0.9, 1.0\]: give two numbers above 0 and below 1"),
        ({"betas": (0.9,)}, r"server.betas = \[0.9\]: give two"),
        ({"learning_rate": 0.0}, r"server.learning_rate = 0.0: give a positive number"),
        ({"epsilon": float("inf")}, r"server.epsilon = inf: give a positive number"),
        (
            {"optimiser": "adam", "lookahead": 0.8},
            r"server.lookahead = 0.8 is a momentum of its own .* server.optimiser = 'adam': leave one",
        ),
    ],
)
def test_impossible_servers_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        ServerOptimiser(**options)
