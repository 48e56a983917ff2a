"""The server's step from one global vector to the next, with state: FedAvgM, FedAdam, FedACG, a running average."""

from dataclasses import dataclass
from math import log
from typing import Literal

import torch
from torch import Tensor

from fedfeast.errors import InvalidInput
from fedfeast.federation.records import State

Optimiser = Literal["none", "momentum", "adam"]
ServedVector = Literal["global", "average"]
USUAL_RATES: dict[Optimiser, float] = {"none": 1.0, "momentum": 1.0, "adam": 0.01}
AVERAGE_WARMUP = 9.0  # an average of n vectors forgets at most n / (n + 9) of itself


@dataclass(frozen=True, eq=False)
class Merged:
    """What a round came to: the vector that was sent, the answers merged into it, and where anybody answered."""

    sent: Tensor
    flat: Tensor
    answered: Tensor  # (positions,) of truth values


@dataclass(frozen=True)
class ServerOptimiser:
    """What the server does with a merged round; by default the merged vector is the next global one.

    All of it acts on positions that somebody answered: the others keep their value and their state bit for bit
    (docs/decisions/033).
    """

    optimiser: Optimiser = "none"
    learning_rate: float | None = None  # of momentum and adam; None: 1 and 0.01
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.99)  # of adam's means of changes and of their squares
    epsilon: float = 1e-3  # of adam: changes far below it are not enlarged
    lookahead: float = 0.0  # of a position's last move, by which what is sent lies ahead
    average: float = 0.0  # of the running average that a round leaves as it is; 0: none is kept

    def __post_init__(self) -> None:
        """Refuse what no server can do."""
        shares = {"momentum": self.momentum, "lookahead": self.lookahead, "average": self.average}
        for name, share in shares.items():
            if not 0 <= share < 1:
                raise InvalidInput(f"server.{name} = {share}: give a number from 0 to below 1.")
        if len(self.betas) != 2 or not all(0 < beta < 1 for beta in self.betas):
            raise InvalidInput(f"server.betas = {list(self.betas)}: give two numbers above 0 and below 1.")
        for name, number in {"learning_rate": self.rate, "epsilon": self.epsilon}.items():
            if not 0 < number < float("inf"):
                raise InvalidInput(f"server.{name} = {number}: give a positive number.")
        if self.lookahead and self.optimiser != "none":
            raise InvalidInput(
                f"server.lookahead = {self.lookahead} is a momentum of its own and does not go with server.optimiser = "
                f"{self.optimiser!r}: leave one of them out."
            )

    @property
    def rate(self) -> float:
        """The learning rate, the usual one where none is given."""
        return USUAL_RATES[self.optimiser] if self.learning_rate is None else self.learning_rate

    @property
    def num_vectors(self) -> int:
        """How many vectors as long as the global one are kept beside it."""
        return {"none": 0, "momentum": 1, "adam": 3}[self.optimiser] + (self.lookahead > 0) + (self.average > 0)

    def initial_state(self, flat: Tensor) -> State:
        """Return the memory that a server starts with, given the initial weights."""
        state: dict[str, Tensor] = {}
        if self.lookahead:
            state["before"] = flat.clone()
        if self.optimiser == "momentum":
            state["velocity"] = torch.zeros_like(flat)
        if self.optimiser == "adam":
            state |= {"mean": torch.zeros_like(flat), "square": torch.zeros_like(flat)}
            state["count"] = torch.zeros_like(flat, dtype=torch.int32)
        if self.average:
            state |= {"average": flat.clone(), "averaged": torch.zeros((), dtype=torch.int64)}
        return state

    def sent(self, state: State, flat: Tensor) -> Tensor:
        """Return the vector that clients get slices of: the global one, or one ahead of it."""
        return flat + self.lookahead * (flat - state["before"]) if self.lookahead else flat

    def server_step(self, state: State, flat: Tensor, merged: Merged) -> tuple[Tensor, State]:
        """Return the next global vector, given the present one, and the memory after it."""
        after, memory = merged.flat, dict(state)
        answered = merged.answered
        if self.lookahead:
            # Ahead are only the clients: where none of them answered, the server stays where it is.
            after = torch.where(answered, after, flat)
            # Choice: the move of the last round alone. What nobody answered in it has not moved, and is sent as it is.
            memory["before"] = flat
        elif self.optimiser != "none":
            change = merged.flat - merged.sent
            move, moved = (
                self._momentum_move(state, change) if self.optimiser == "momentum" else self._adam_move(state, change)
            )
            after = torch.where(answered, flat + self.rate * move, after)
            memory |= {name: torch.where(answered, tensor, state[name]) for name, tensor in moved.items()}
        if self.average:
            memory |= self._average(state, after)
        return after, memory

    def averaged(self, state: State) -> Tensor | None:
        """Return the running average of the global vectors so far, where one is kept."""
        return state["average"] if self.average else None

    def _momentum_move(self, state: State, change: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        velocity = self.momentum * state["velocity"] + change
        return velocity, {"velocity": velocity}

    def _adam_move(self, state: State, change: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        # Choice: means are corrected by how often a position was answered, not by the round's number.
        count = state["count"] + 1
        mean, square = (
            torch.lerp(earlier, new, 1 - beta)
            for earlier, new, beta in zip(
                (state["mean"], state["square"]), (change, change**2), self.betas, strict=True
            )
        )
        first, second = (-torch.expm1(log(beta) * count.to(change.dtype)) for beta in self.betas)  # 1 - beta^count
        move = (mean / first) / ((square / second).sqrt() + self.epsilon)
        return move, {"mean": mean, "square": square, "count": count}

    def _average(self, state: State, flat: Tensor) -> dict[str, Tensor]:
        """Return the average with one more vector: until it has many, it forgets faster than it will at last."""
        averaged = int(state["averaged"])
        kept = min(self.average, averaged / (averaged + AVERAGE_WARMUP))
        return {"average": torch.lerp(state["average"], flat, 1 - kept), "averaged": state["averaged"] + 1}
