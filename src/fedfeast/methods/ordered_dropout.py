"""Ordered dropout (Horvath et al., 2021): one of the networks that a client affords on every mini-batch."""

from collections import Counter
from collections.abc import Hashable
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.federation import Assignment, Constants, Method, Pass, taught_loss


class OrderedDropout(Method):
    """A client trains, mini-batch by mini-batch, one of the networks that it affords, drawn at random."""

    paper: ClassVar = "Horvath et al., FjORD: Fair and Accurate Federated Learning under Heterogeneous Targets, 2021"
    distillation: bool  # the client's largest network is trained too, and teaches the drawn one

    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        """Return a pass of a network drawn from those the client affords, after the teacher's where there is one."""
        drawn = assignment.architectures[generator.integers(len(assignment.architectures))]
        if not self.distillation:
            return [Pass(drawn, "supervised")]
        return [Pass(assignment.architectures[-1], "teacher"), Pass(drawn, "student")]

    def expected_passes(self, assignment: Assignment) -> dict[Hashable, float]:
        """Return an equal share for every affordable network, and one more pass for a teacher."""
        number = len(assignment.architectures)
        shares = {one: times / number for one, times in Counter(assignment.architectures).items()}
        if self.distillation:
            shares[assignment.architectures[-1]] += 1.0
        return shares

    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor | None]:
        """Return the supervised loss, or for a student that against its teacher alone."""
        (logits,) = outputs
        return taught_loss(role, logits, batch, carried)
