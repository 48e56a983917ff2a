"""The server's own examples: class-balanced validation and calibration sets, split off first."""

from dataclasses import dataclass

import numpy as np

from fedfeast.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class ServerSplit:
    """Three disjoint sets of positions in the training examples."""

    clients: np.ndarray
    validation: np.ndarray
    calibration: np.ndarray


def split_server_examples(
    labels: np.ndarray, num_validation: int, num_calibration: int, generator: np.random.Generator
) -> ServerSplit:
    """Hold out validation and calibration examples, as equally over the classes as their numbers allow."""
    held_out = num_validation + num_calibration
    if num_validation < 1 or num_calibration < 1 or held_out >= len(labels):
        raise InvalidInput(
            f"data.validation_examples = {num_validation} and data.calibration_examples = {num_calibration} "
            f"do not fit {len(labels)} training examples: each needs at least 1 and the clients need the rest."
        )
    shuffled = generator.permutation(len(labels))
    rank_in_class = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = shuffled[labels[shuffled] == label]
        rank_in_class[members] = np.arange(len(members))
    # One example of every class in turn, so that any prefix is balanced to within one.
    dealt = shuffled[np.argsort(rank_in_class[shuffled], kind="stable")]
    return ServerSplit(
        clients=np.sort(dealt[held_out:]),
        validation=np.sort(dealt[:num_validation]),
        calibration=np.sort(dealt[num_validation:held_out]),
    )
