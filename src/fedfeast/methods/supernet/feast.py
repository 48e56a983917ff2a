"""FEAST: budget-tailored routing and local multi-variant co-training (Secs. 3.3 and 3.4)."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any, ClassVar, Literal, Self

import numpy as np
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.errors import InvalidInput
from fedfeast.federation import (
    Assignment,
    Client,
    Constants,
    Parts,
    Pass,
    State,
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

    suits: ClassVar = (
        "Many sizes from one training where small devices hold little data: every size is trained by all who afford it."
    )

    paper: ClassVar = "FEAST: Federated Shared-Space Training for Resource-Heterogeneous Clients"
    network: ElasticNetwork
    cache: VariantCache
    rule: TrainingRule = "full"  # the rows of the paper's component table
    distillation_share: float = 0.5  # rho_kd
    temperature: float = 1.0  # by which teacher's and students' outputs are divided; the loss is times its square
    backbone: Backbone = "elastic"  # what is trained: the elastic network, or the ResNet as a control
    widths: tuple[float, ...] | None = None  # of the ResNet's channels, where that is the backbone
    sampling: Sampling = "uniform"  # of the intermediate: all alike, or in proportion to 1 / MACs
    smallest_share: float = 1.0  # of the steps, drawn one by one, that pass through the smallest beside larger ones
    student_batch: float = 1.0  # of a mini-batch's examples, the first ones, that students are given
    progressive: float = 0.0  # share of the rounds, the first ones, in which the largest network that is trained grows
    # No option, hence without a plain default: how long training will be; 0 where nobody says.
    rounds: int = field(default_factory=int, kw_only=True)

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return FEAST on the elastic network, or its training rule on the ResNet."""
        backbone, widths = options.get("backbone", cls.backbone), options.get("widths")
        return cls(*variants_on(parts, "feast", backbone, widths), rounds=parts.rounds, **options)

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

        if not 0 < self.smallest_share <= 1 or not 0 < self.student_batch <= 1:
            raise InvalidInput(
                f"method.smallest_share = {self.smallest_share} and method.student_batch = {self.student_batch}: "
                "give shares above 0 and up to 1."
            )
        if not 0 <= self.progressive <= 1:
            raise InvalidInput(f"method.progressive = {self.progressive}: give a share of the rounds from 0 to 1.")
        if self.smallest_share < 1 and self.rule in ("global-min", "local-max"):
            raise InvalidInput(
                f"method.smallest_share = {self.smallest_share} is for the smallest network beside larger ones, and "
                f"method.rule = {self.rule!r} trains one network: choose another rule, or leave it out."
            )
        if self.student_batch < 1 and self.rule not in ("full", "min-max-distilled"):
            raise InvalidInput(
                f"method.student_batch = {self.student_batch} is for students, and method.rule = {self.rule!r} has "
                "none: choose full or min-max-distilled, or leave it out."
            )

    def plan_round(
        self, state: State, flat: Tensor, cohort: Sequence[Client], round_index: int, generator: np.random.Generator
    ) -> tuple[list[Assignment], State]:
        """Route each client the envelope of its affordable set, in a progressive start of those up to a price."""
        limit = self.greatest_price(round_index)
        if limit == inf:
            return super().plan_round(state, flat, cohort, round_index, generator)
        return [self.assign_up_to(client, limit) for client in cohort], state

    def greatest_price(self, round_index: int) -> float:
        """Return the MACs up to which a round's clients train: from the smallest variant's to the largest's."""
        growing = self.progressive * self.rounds
        if round_index >= growing:
            return inf
        # Choice: on a straight line in MACs (docs/decisions/035).
        least, most = self.cache[0].price, self.cache[-1].price
        return least + (most - least) * round_index / growing

    def rounds_alike(self) -> Mapping[int, float]:
        """Return rounds, and the share of all rounds that are planned like each of them."""
        growing = min(ceil(self.progressive * self.rounds), self.rounds)
        if not growing:
            return super().rounds_alike()
        first: dict[int, int] = {}  # the number of variants that are trained -> the first round of it
        shares: dict[int, float] = {}
        for index in range(growing):
            count = len(self.cache.affordable(self.greatest_price(index)))
            start = first.setdefault(count, index)
            shares[start] = shares.get(start, 0.0) + 1 / self.rounds
        if growing < self.rounds:
            shares[growing] = (self.rounds - growing) / self.rounds
        return shares

    def fullest_step(self) -> list[Pass]:
        """Return a step of the largest variants where the first rounds have smaller ones alone."""
        if not self.progressive:
            return []
        everything = self.assign(Client(0, "", inf, 1))
        return max((self.passes(everything, 0, np.random.default_rng(draw)) for draw in range(8)), key=len)

    @property
    def takes_parts(self) -> bool:
        """Whether students are given a part of the mini-batch alone."""
        return self.student_batch < 1

    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        """Return a_max first, then a_min and one random intermediate, as far as they exist (Sec. 3.4)."""
        smallest, largest = assignment.architectures[0], assignment.architectures[-1]
        interior = self._interior(assignment)
        if self.rule == "global-min" or smallest == largest:
            return [Pass(smallest, "supervised")]
        if self.rule == "local-max":
            return [Pass(largest, "supervised")]
        is_taught = self.rule != "min-max"
        passes = [Pass(largest, "teacher" if is_taught else "supervised")]
        if self.smallest_share == 1 or generator.random() < self.smallest_share:
            passes.append(self._student(smallest) if is_taught else Pass(smallest, "supervised"))
        if self.rule == "full" and interior:
            passes.append(self._student(self._draw(interior, generator)))
        return passes

    def _student(self, architecture: Hashable) -> Pass:
        return Pass(architecture, "student", self.student_batch)

    def expected_passes(self, assignment: Assignment) -> dict[Hashable, float]:
        """Return 1 for the endpoints that the rule trains and its chance for each intermediate, or parts of these."""
        smallest, largest = assignment.architectures[0], assignment.architectures[-1]
        interior = self._interior(assignment) if self.rule == "full" else ()
        if self.rule == "global-min" or smallest == largest:
            return {smallest: 1.0}
        passes = {largest: 1.0}
        if self.rule != "local-max":
            passes[smallest] = self.smallest_share * self.student_batch
        chances = drawing_chances(self._costs(interior), self.sampling).tolist()
        for one, chance in zip(interior, chances, strict=True):
            # A network that the cache has twice is drawn twice as often.
            passes[one] = passes.get(one, 0.0) + chance * self.student_batch
        return passes

    def _interior(self, assignment: Assignment) -> tuple[Hashable, ...]:
        """Return what may be drawn between the endpoints; a second row of an endpoint's network is none."""
        architectures = assignment.architectures
        return tuple(one for one in architectures[1:-1] if one not in (architectures[0], architectures[-1]))

    def _draw(self, interior: Sequence[Hashable], generator: np.random.Generator) -> Hashable:
        """Draw the intermediate."""
        if self.sampling == "uniform":
            return interior[int(generator.integers(len(interior)))]
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
            told = carried[: len(logits)]  # a student may be given a part of the mini-batch
            distilled = batch.task.distillation_loss(self._tempered(logits), told, batch.labels_a)
            if self.temperature != 1:
                distilled = self.temperature**2 * distilled  # gradients keep their size
            return (1 - self.distillation_share) * supervised + self.distillation_share * distilled, carried
        return supervised, carried

    def _tempered(self, logits: Tensor) -> Tensor:
        return logits if self.temperature == 1 else logits / self.temperature
