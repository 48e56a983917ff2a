"""How the replies of a round are made, checked and merged; by default they are added up as they are."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from torch import Tensor

from fedfeast.federation.aggregation.adversary import Adversary
from fedfeast.federation.aggregation.aggregator import Aggregator
from fedfeast.federation.aggregation.central_privacy import CentralRound
from fedfeast.federation.aggregation.privacy import Privacy, privatise
from fedfeast.federation.aggregation.refusals import NormHistory
from fedfeast.federation.aggregation.robust import Aggregation
from fedfeast.federation.records import Assignment
from fedfeast.federation.wire.link import Link, Wire
from fedfeast.federation.wire.memory import WireMemory
from fedfeast.randomness import named_generator


@dataclass(frozen=True)
class UpdatePolicy:
    """What a run does to replies; history, memory and central privacy's part change from round to round."""

    aggregation: Aggregation = field(default_factory=Aggregation)
    privacy: Privacy | None = None
    adversary: Adversary | None = None
    seed: int = 0  # of the noise
    history: NormHistory = field(default_factory=NormHistory)
    cohort_size: int | None = None  # of the whole cohort, where this is a share of it
    central: CentralRound | None = None  # noise on the sum, where a trusted server adds it
    wire: Wire = field(default_factory=Wire)
    wire_memory: WireMemory = field(default_factory=WireMemory)

    @property
    def is_plain(self) -> bool:
        """Whether replies are neither changed, checked nor weighed against each other."""
        plain_merge = self.aggregation.rule == "mean" and self.aggregation.refuse_multiple is None
        treated = self.privacy is not None or self.adversary is not None or self.central is not None
        return plain_merge and not treated and self.wire.is_lossless

    def weighed(self, assignments: Sequence[Assignment]) -> list[Assignment]:
        """Return a whole cohort's assignments with what their answers may weigh."""
        options, weights = self.aggregation, [self._claimed(one) for one in assignments]
        if self.central is not None:
            weights = [self.central.privacy.weight(weight) for weight in weights]
        elif options.weigh == "alike":
            weights = [1.0] * len(weights)
        elif options.weight_cap is not None and weights:
            # Choice: how many examples a client has is its own word; the median of a cohort is nobody's alone.
            most = options.weight_cap * median(weights)
            weights = [min(weight, most) for weight in weights]
        return [replace(one, weight=weight) for one, weight in zip(assignments, weights, strict=True)]

    def _claimed(self, assignment: Assignment) -> float:
        """Return what a client's answer weighs by its own word."""
        if self.adversary is None or assignment.client.index not in self.adversary.clients:
            return assignment.weight
        return assignment.weight * self.adversary.claimed_multiple

    def reply(self, assignment: Assignment, round_index: int, sent: Tensor, returned: Tensor) -> Tensor:
        """Return what a simulated client sends back, given what it received and trained."""
        client = assignment.client.index
        if self.adversary is not None and client in self.adversary.clients:
            return self.adversary.attack(sent, returned)
        if self.privacy is None:
            return returned
        generator = named_generator(self.seed, "round", round_index, "client", client, "noise")
        slices = assignment.slice_map
        return slices.unpack(privatise(slices.pack(sent), slices.pack(returned), self.privacy, generator))

    def link(self, round_index: int) -> Link:
        """Return the wire of a simulated round."""
        return Link(self.wire, self.wire_memory, self.seed, round_index)

    def aggregator(self, flat: Tensor, expected: int, checked: bool = False, of_ages: bool = False) -> Aggregator:
        """Return what takes the replies of a round; checked, whatever the rule, where they come from elsewhere.

        Replies of several ages left from different vectors, of which ``flat`` is only the newest.
        """
        checked = checked or not self.is_plain
        expected = self.cohort_size or expected
        return Aggregator(flat, self.aggregation, self.history, expected, checked, self.central, of_ages)
