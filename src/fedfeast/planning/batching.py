"""How many batches a client's epoch has before anything is drawn: full ones, and what is left."""

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput
from fedfeast.recipes.sections import TrainingSection


@dataclass(frozen=True, eq=False)
class EpochBatches:
    """The batches of one local epoch, client by client."""

    full: NDArray[np.int64]  # of the recipe's size
    last_rows: NDArray[np.int64]  # examples that are gone through in the last one beside these; 0 where there is none
    batch_size: int

    @property
    def steps(self) -> NDArray[np.int64]:
        """How many there are."""
        return self.full + (self.last_rows > 0)

    def report(self, local_epochs: int) -> dict[str, int]:
        """Return what all clients do in one round each: steps, those of short batches, and who takes none."""
        is_short = (self.last_rows > 0) & (self.last_rows < self.batch_size)
        return {
            "steps": int(self.steps.sum()) * local_epochs,
            "short": int(is_short.sum()) * local_epochs,
            "clients_without": int((self.steps == 0).sum()),
        }


def plan_batches(training: TrainingSection, num_examples: np.ndarray) -> EpochBatches:
    """Return the batches of clients that hold so many examples; a part of an example counts as one."""
    sizes = np.ceil(num_examples).astype(np.int64)
    full, rest = np.divmod(sizes, training.batch_size)
    is_short = training.last_batch == "short"
    # A topped-up batch chooses from the whole shard, so that only a shard of fewer examples goes without it.
    is_taken = (rest > 0) & ((rest if is_short else sizes) >= training.least_distinct)
    last_rows = np.where(is_taken, rest if is_short else training.batch_size, 0)
    return EpochBatches(full, last_rows, training.batch_size)


def refuse_idleness(training: TrainingSection, num_examples: np.ndarray) -> None:
    """Refuse clients of whom nobody has a batch to train on."""
    if plan_batches(training, num_examples).steps.any():
        return
    most = int(num_examples.max(initial=0))
    remedy = f"set it to {most} or less" if most else "give the clients more examples"
    raise InvalidInput(
        f"no client has a batch to train on: training.least_distinct = {training.least_distinct}, and the largest of "
        f"{len(num_examples)} clients has {most} examples; {remedy}."
    )


def warn_of_idleness(training: TrainingSection, num_examples: np.ndarray) -> None:
    """Warn of clients that never have a batch to train on."""
    idle = int((plan_batches(training, num_examples).steps == 0).sum())
    if idle:
        logging.getLogger("fedfeast").warning(
            "%s of %s clients never train: they hold too few examples for a batch (training.least_distinct = %s)",
            *(f"{idle:,}", f"{len(num_examples):,}", training.least_distinct),
        )
