"""FEAST: budget-tailored routing and local multi-variant co-training (Secs. 3.3 and 3.4)."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal, Self

import numpy as np
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import (
    Assignment,
    Constants,
    Parts,
    Pass,
    supervised_loss,
)
from fedfeast.methods.served_variants import EnvelopeRouting, variants_on
from fedfeast.methods.tiers import Backbone
from fedfeast.networks import ElasticNetwork
from fedfeast.variants import VariantCache

TrainingRule = Literal["full", "global-min", "local-max", "min-max", "min-max-distilled"]


@dataclass(frozen=True)
class Feast(EnvelopeRouting):
    """Train the smallest, a random and the largest affordable variant together on every mini-batch."""

    paper: ClassVar = "FEAST: Federated Shared-Space Training for Resource-Heterogeneous Clients"
    network: ElasticNetwork
    cache: VariantCache
    rule: TrainingRule = "full"  # the rows of the paper's component table
    distillation_share: float = 0.5  # rho_kd
    temperature: float = 1.0  # by which teacher's and students' outputs are divided; the loss is times its square
    backbone: Backbone = "elastic"
    widths: tuple[float, ...] | None = None  # of the ResNet's channels, where that is the backbone

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return FEAST on the elastic network, or its training rule on the ResNet."""
        backbone, widths = options.get("backbone", cls.backbone), options.get("widths")
        return cls(*variants_on(parts, "feast", backbone, widths), **options)

    def __post_init__(self) -> None:
        if not 0 <= self.distillation_share <= 1:
            raise InvalidInput(f"method.distillation_share = {self.distillation_share}: give a share from 0 to 1.")
        if not 0 < self.temperature < inf:
            raise InvalidInput(f"method.temperature = {self.temperature}: give a number above 0; the paper has 1.")

    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        """Return a_max first, then a_min and one random intermediate, as far as they exist (Sec. 3.4)."""
        smallest, largest = assignment.architectures[0], assignment.architectures[-1]
        interior = self._interior(assignment)
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
        interior = self._interior(assignment) if self.rule == "full" else ()
        endpoints = {"global-min": [smallest], "local-max": [largest]}.get(self.rule, [largest, smallest])
        drawn = Counter(interior)  # a network that the cache has twice is drawn twice as often
        return {one: 1.0 for one in endpoints} | {one: times / len(interior) for one, times in drawn.items()}

    def _interior(self, assignment: Assignment) -> tuple[Hashable, ...]:
        """Return what may be drawn between the endpoints; a second row of an endpoint's network is none."""
        architectures = assignment.architectures
        return tuple(one for one in architectures[1:-1] if one not in (architectures[0], architectures[-1]))

    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor | None]:
        """Return L_sup, or for a student L_stu against the teacher's detached softmax (Eq. 9)."""
        (logits,) = outputs
        supervised = supervised_loss(logits, batch)
        if role == "teacher":
            return supervised, batch.task.soften(self._tempered(logits.detach()))
        if role == "student":
            assert carried is not None, "the teacher's pass comes first"
            distilled = batch.task.distillation_loss(self._tempered(logits), carried, batch.labels_a)
            if self.temperature != 1:
                distilled = self.temperature**2 * distilled  # gradients keep their size
            return (1 - self.distillation_share) * supervised + self.distillation_share * distilled, carried
        return supervised, carried

    def _tempered(self, logits: Tensor) -> Tensor:
        return logits if self.temperature == 1 else logits / self.temperature
