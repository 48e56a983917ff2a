"""The interface of a federated method: what is sent, trained, merged and served."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation.aggregation.accumulator import Answers
from fedfeast.federation.local_sgd import LocalSgd
from fedfeast.federation.parts import Parts
from fedfeast.federation.records import Assignment, Client, Constants, Deployed, OperatingPoint, Pass, State
from fedfeast.federation.server_step import ServerOptimiser
from fedfeast.networks import Network
from fedfeast.routing import LeadingSlices


class Method(ABC):
    """A frozen dataclass of hyper-parameters; it holds no state and touches no device, file or log.

    One round, as an engine runs it: ``plan_round`` once, then for every assignment and mini-batch ``passes``,
    and ``loss`` after each pass in that order; the gradients of a step add up to one update; ``merge`` at the end.
    """

    paper: ClassVar[str] = ""  # where the method comes from
    suits: ClassVar[str] = ""  # when it is the better choice, in a sentence
    plans_by_weights: ClassVar[bool] = True  # whether plan_round looks at the weights; plans of a recipe then draw them
    plans_differ: ClassVar[bool] = False  # whether clients of the same budget may be given different networks
    changes_weights: ClassVar[bool] = False  # whether passes compute with other weights than the client's: weights()
    # Whether roles and weights are those of a cohort as a whole: answers of several cohorts then cannot be merged.
    plans_whole_cohorts: ClassVar[bool] = False
    cost_follows_weights: ClassVar[bool] = False  # whether what a point costs depends on the weights: deploy()
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # sets of options by name: method.preset
    # What options were before they existed or had another default: runs that began then go on with them.
    former_defaults: ClassVar[Mapping[str, Any]] = {}
    network: Network

    def __init_subclass__(cls) -> None:
        """Refuse a method that does something of its own without declaring it: engines would pass it over."""
        super().__init_subclass__()
        if cls.weights is not Method.weights and not cls.changes_weights:
            raise TypeError(f"{cls.__name__} has weights() of its own: declare changes_weights = True in the class.")
        if cls.counted is not Method.counted and cls.counts_in_part is Method.counts_in_part:
            raise TypeError(f"{cls.__name__} has counted() of its own: define counts_in_part beside it.")

    @classmethod
    @abstractmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return the method for a recipe's networks; options are its hyper-parameters, fields with a default."""

    @property
    def keeps_budgets(self) -> bool:
        """Whether no client is made to train what it could not afford to serve."""
        return True

    @property
    def needs_held_classes(self) -> bool:
        """Whether the server must know which classes a client holds; else a fleet's clients do not say."""
        return False

    @property
    def counts_in_part(self) -> bool:
        """Whether an answer may not count everywhere, as ``counted`` says."""
        return False

    @property
    def takes_parts(self) -> bool:
        """Whether some passes are given a part of the mini-batch alone."""
        return False

    @property
    def least_macs(self) -> int:
        """The smallest budget that the method is made for; clients below it are an error unless excluded."""
        points = self.operating_points()
        if not points:
            name = type(self).__name__
            raise InvalidInput(f"{name}.operating_points() is empty: return at least one network to serve.")
        return points[0].price

    def initial_state(self) -> State:
        """Return the memory a federation starts with."""
        return {}

    def optimiser(self, common: LocalSgd) -> LocalSgd:
        """Return the clients' optimiser, given the one that all methods share."""
        return common

    def server_optimiser(self, common: ServerOptimiser) -> ServerOptimiser:
        """Return the server's optimiser, whose ``server_step`` follows ``merge``, given that of the recipe."""
        return common

    def trains(self, budget_macs: float) -> bool:
        """Return whether a client with this budget takes part in training."""
        return budget_macs >= self.least_macs

    @abstractmethod
    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Give every client of the cohort its part in this round, which starts from the global vector."""

    def rounds_alike(self) -> Mapping[int, float]:
        """Return rounds that stand for all rounds of a run, each with its share of them."""
        return {0: 1.0}

    def fullest_step(self) -> Sequence[Pass]:
        """Return a step for which there must be room where the first rounds have smaller ones, else nothing."""
        return ()

    @abstractmethod
    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        """Return the passes of one local step, in order."""

    @abstractmethod
    def expected_passes(self, assignment: Assignment) -> dict[Hashable, float]:
        """Return how often a local step passes through each architecture on average; a part of a batch is as much."""

    def served_macs(self, assignment: Assignment) -> int:
        """Return what one inference of the largest network that a client trains would cost it."""
        return max(self.network.macs(architecture) for architecture in assignment.architectures)

    def weights(self, weights: Tensor, constants: Constants) -> Tensor:
        """Return the weights that passes compute with, given those of a client, position by position."""
        return weights

    def weight_gradient(self, gradient: Tensor, weights: Tensor, constants: Constants) -> Tensor:
        """Return the gradient by a client's weights, given that by the weights that passes compute with."""
        return gradient

    @abstractmethod
    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor | None]:
        """Return a pass's loss and what it leaves to the step's later passes."""

    def counted(self, assignment: Assignment, sent: Tensor, returned: Tensor) -> Tensor | None:
        """Return where a client's answer counts, as a mask of its vector; None is everywhere."""
        return None

    @abstractmethod
    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return the networks to serve, least price first: least MACs, unless a cache has prices."""

    def trained_architectures(self) -> tuple[Hashable, ...]:
        """Return the architectures that training comes back to, which engines prepare for and take memory by.

        Others may occur, if some listed one has as many weights in its convolutions, and one as many elsewhere.
        """
        return tuple(dict.fromkeys(point.architecture for point in self.operating_points()))

    def merge(self, flat: Tensor, answers: Answers) -> Tensor:
        """Return the vector that was sent with the answers in place of what they answer."""
        return answers.merged_with(flat)

    def deploy(self, flat: Tensor, point: OperatingPoint) -> Deployed:
        """Take an operating point out of the global vector."""
        slices = LeadingSlices.of(self.network.layout, self.network.shapes(point.architecture))
        local = slices.gather(flat)
        costs = point.macs, point.parameters
        return Deployed(self.network, point.architecture, slices.layout, local, *costs, is_sliced=True)
