"""FjORD: ordered dropout, a random affordable width on every mini-batch (Horvath et al., 2021)."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.federation import Assignment, Client, Constants, Parts, Pass, mixed_cross_entropy, soft_cross_entropy
from fedfeast.methods.tiers import Tier, TieredMethod, Weighting, narrowed
from fedfeast.networks import Level, ResNet


@dataclass(frozen=True)
class FjORD(TieredMethod):
    """Every client trains, mini-batch by mini-batch, one of the widths it affords."""

    paper: ClassVar = "Horvath et al., FjORD: Fair and Accurate Federated Learning under Heterogeneous Targets, 2021"
    network: ResNet
    widths: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
    weighting: Weighting = "samples"
    distillation: bool = False  # the client's largest width is trained too, and teaches the drawn one

    @classmethod
    def build(cls, parts: Parts, **options: Any) -> Self:
        """Return FjORD on a post-activation ResNet."""
        return cls(parts.resnet_for("fjord"), **options)

    def levels_in_order(self) -> Sequence[Tier]:
        """Return a level per width."""
        return narrowed(self.network, self.widths)

    def levels_of(self, client: Client) -> tuple[Level, ...]:
        """Return every width that the client affords."""
        return tuple(tier.trained for tier in self.affordable(client.budget_macs))

    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        """Return a pass of a width drawn from those the client affords, after the teacher's where there is one."""
        drawn = assignment.architectures[generator.integers(len(assignment.architectures))]
        if not self.distillation:
            return [Pass(drawn, "supervised")]
        return [Pass(assignment.architectures[-1], "teacher"), Pass(drawn, "student")]

    def expected_passes(self, assignment: Assignment) -> dict[Hashable, float]:
        """Return an equal share for every affordable width, and one more pass for a teacher."""
        shares = {level: 1.0 / len(assignment.architectures) for level in assignment.architectures}
        if self.distillation:
            shares[assignment.architectures[-1]] += 1.0
        return shares

    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor | None]:
        """Return the supervised loss, or for a student the cross-entropy against its teacher alone."""
        (logits,) = outputs
        if role == "student":
            assert carried is not None, "the teacher's pass comes first"
            return soft_cross_entropy(logits, carried), carried
        return mixed_cross_entropy(logits, batch), logits.detach().softmax(dim=1) if role == "teacher" else None
