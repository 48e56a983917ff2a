"""FEAST: budget-tailored routing and local multi-variant co-training (Secs. 3.3 and 3.4)."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import (
    Assignment,
    Client,
    Constants,
    Method,
    OperatingPoint,
    Parts,
    Pass,
    State,
    supervised_loss,
)
from fedfeast.methods.served_variants import cached_points
from fedfeast.networks import Architecture, ElasticResNet
from fedfeast.routing import LeadingSlices, SliceMap, envelope_of
from fedfeast.variants import VariantCache

TrainingRule = Literal["full", "global-min", "local-max", "min-max", "min-max-distilled"]


@dataclass(frozen=True)
class Feast(Method):
    """Train the smallest, a random and the largest affordable variant together on every mini-batch."""

    paper: ClassVar = "FEAST: Federated Shared-Space Training for Resource-Heterogeneous Clients"
    network: ElasticResNet
    cache: VariantCache
    rule: TrainingRule = "full"  # the rows of the paper's component table
    distillation_share: float = 0.5  # rho_kd

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return FEAST on the elastic network."""
        return cls(parts.elastic, parts.cache, **options)

    def __post_init__(self) -> None:
        if not 0 <= self.distillation_share <= 1:
            raise InvalidInput(f"method.distillation_share = {self.distillation_share}: give a share from 0 to 1.")

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Route each client the envelope of its affordable set (Eqs. 3, 4); its answer weighs n_i (Eq. 7)."""
        return [self.assign(client) for client in cohort], state

    def assign(self, client: Client) -> Assignment:
        """Return what one client receives and may train; it is the same in every round."""
        affordable = self.cache.affordable(client.budget_macs)
        envelope = envelope_of(affordable, self.network.space)
        if envelope not in self._slice_maps:
            self._slice_maps[envelope] = LeadingSlices.of(self.network.layout, self.network.shapes(envelope))
        architectures = tuple(variant.architecture for variant in affordable)
        return Assignment(client, self._slice_maps[envelope], architectures, weight=client.num_examples)

    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        """Return a_max first, then a_min and one random intermediate, as far as they exist (Sec. 3.4)."""
        smallest, largest = assignment.architectures[0], assignment.architectures[-1]
        interior = assignment.architectures[1:-1]
        if self.rule == "global-min" or smallest == largest:
            return [Pass(smallest, "supervised")]
        if self.rule == "local-max":
            return [Pass(largest, "supervised")]
        if self.rule == "min-max":
            return [Pass(largest, "supervised"), Pass(smallest, "supervised")]
        passes = [Pass(largest, "teacher"), Pass(smallest, "student")]
        if self.rule == "full" and interior:
            passes.append(Pass(interior[generator.integers(len(interior))], "student"))
        return passes

    def expected_passes(self, assignment: Assignment) -> dict[Hashable, float]:
        """Return 1 for the endpoints that the rule trains and 1/k for each of k intermediates."""
        smallest, largest = assignment.architectures[0], assignment.architectures[-1]
        interior = assignment.architectures[1:-1] if self.rule == "full" else ()
        endpoints = {"global-min": [smallest], "local-max": [largest]}.get(self.rule, [largest, smallest])
        return {one: 1.0 for one in endpoints} | {one: 1.0 / len(interior) for one in interior}

    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor | None]:
        """Return L_sup, or for a student L_stu against the teacher's detached softmax (Eq. 9)."""
        (logits,) = outputs
        supervised = supervised_loss(logits, batch)
        if role == "teacher":
            return supervised, batch.task.soften(logits.detach())
        if role == "student":
            assert carried is not None, "the teacher's pass comes first"
            distilled = batch.task.distillation_loss(logits, carried)
            return (1 - self.distillation_share) * supervised + self.distillation_share * distilled, carried
        return supervised, carried

    def operating_points(self) -> tuple[OperatingPoint, ...]:
        """Return every cached variant."""
        return cached_points(self.cache)

    @cached_property
    def _slice_maps(self) -> dict[Architecture, SliceMap]:
        """One map per distinct envelope, made when first needed."""
        return {}
