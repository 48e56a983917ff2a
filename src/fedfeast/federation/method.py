"""The interface of a federated method: what is sent, trained, merged and served."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence

import numpy as np
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.federation.aggregation import Accumulator
from fedfeast.federation.records import Assignment, Client, Deployed, OperatingPoint, Pass, State
from fedfeast.networks import Network
from fedfeast.routing import SliceMap


class Method(ABC):
    """A frozen dataclass of hyper-parameters; it holds no state and touches no device, file or log.

    One round, as an engine runs it: ``plan_round`` once, then for every assignment and mini-batch ``passes``,
    and ``loss`` after each pass in that order; the gradients of a step add up to one update; ``merge`` at the end.
    """

    network: Network

    def initial_state(self) -> State:
        """Return the memory a federation starts with."""
        return {}

    @abstractmethod
    def trains(self, budget_macs: float) -> bool:
        """Return whether a client with this budget takes part in training."""

    @abstractmethod
    def plan_round(
        self, state: State, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Give every client of the cohort its part in this round."""

    @abstractmethod
    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        """Return the passes of one local step, in order."""

    @abstractmethod
    def expected_passes(self, assignment: Assignment) -> dict[Hashable, float]:
        """Return how often a local step passes through each architecture on average."""

    @abstractmethod
    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return a pass's loss and what it leaves to the step's later passes."""

    @abstractmethod
    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return the networks to serve, least MACs first."""

    def merge(self, flat: Tensor, answers: Accumulator) -> Tensor:
        """Return the global vector after the round."""
        return answers.mean(flat)

    def deploy(self, flat: Tensor, point: OperatingPoint) -> Deployed:
        """Take an operating point out of the global vector."""
        slices = SliceMap.leading(self.network.layout, self.network.shapes(point.architecture))
        return Deployed(self.network, point.architecture, slices.layout, slices.gather(flat))
