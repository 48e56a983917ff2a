"""FEAST: budget-tailored routing and local multi-variant co-training (Secs. 3.3 and 3.4)."""

from collections.abc import Hashable, Sequence
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
from fedfeast.methods.served_variants import EnvelopeRouting, Sampling, draw_place, drawing_chances, variants_on
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
    sampling: Sampling = "uniform"  # of the intermediate: all alike, or in proportion to 1 / MACs

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
        if self.sampling != "uniform" and self.rule != "full":
            raise InvalidInput(
                f"method.sampling = {self.sampling!r} draws between the smallest and the largest network, and "
                f"method.rule = {self.rule!r} draws none: set method.rule=full, or leave it out."
            )

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
            passes.append(Pass(self._draw(interior, generator), "student"))
        return passes

    def expected_passes(self, assignment: Assignment) -> dict[Hashable, float]:
        """Return 1 for the endpoints that the rule trains, and its chance for each intermediate."""
        smallest, largest = assignment.architectures[0], assignment.architectures[-1]
        interior = self._interior(assignment) if self.rule == "full" else ()
        endpoints = {"global-min": [smallest], "local-max": [largest]}.get(self.rule, [largest, smallest])
        passes = dict.fromkeys(endpoints, 1.0)
        chances = drawing_chances(self._costs(interior), self.sampling).tolist()
        for one, chance in zip(interior, chances, strict=True):
            passes[one] = passes.get(one, 0.0) + chance  # a network that the cache has twice is drawn twice as often
        return passes

    def _interior(self, assignment: Assignment) -> tuple[Hashable, ...]:
        """Return what may be drawn between the endpoints; a second row of an endpoint's network is none."""
        architectures = assignment.architectures
        return tuple(one for one in architectures[1:-1] if one not in (architectures[0], architectures[-1]))

    def _draw(self, interior: Sequence[Hashable], generator: np.random.Generator) -> Hashable:
        """Draw the intermediate."""
        if self.sampling == "uniform":
            return interior[generator.integers(len(interior))]
        return interior[draw_place(self._costs(interior), self.sampling, generator)]

    def _costs(self, architectures: Sequence[Hashable]) -> list[int]:
        """Return the MACs by which some variants are drawn."""
        return [self._prices[one] for one in architectures]

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
