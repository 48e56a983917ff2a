"""What methods share whose clients train one network without a teacher."""

from collections.abc import Hashable

import numpy as np
from torch import Tensor

from fedfeast.data import Batch
from fedfeast.federation import Assignment, Constants, Method, Pass, supervised_loss


class OnePassMethod(Method):
    """Every local step is one supervised pass of the last network that the client was assigned."""

    def passes(self, assignment: Assignment, step: int, generator: np.random.Generator) -> list[Pass]:
        """Return the one supervised pass."""
        return [Pass(assignment.architectures[-1], "supervised")]

    def expected_passes(self, assignment: Assignment) -> dict[Hashable, float]:
        """Return the one pass."""
        return {assignment.architectures[-1]: 1.0}

    def loss(
        self, role: str, outputs: tuple[Tensor, ...], batch: Batch, carried: Tensor | None, constants: Constants
    ) -> tuple[Tensor, Tensor | None]:
        """Return the supervised loss of the last exit."""
        return supervised_loss(outputs[-1], batch), None
