"""The server's own examples: class-balanced validation and calibration sets, split off first."""

from dataclasses import dataclass

import numpy as np

from fedfeast.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class ServerSplit:
    """Disjoint positions: the clients' in training, the server's in its own examples or, without those, in training."""

    clients: np.ndarray
    validation: np.ndarray
    calibration: np.ndarray


def split_server_examples(
    labels: np.ndarray,
    num_validation: int,
    num_calibration: int,
    generator: np.random.Generator,
    server_labels: np.ndarray | None = None,
) -> ServerSplit:
    """Hold out validation and calibration examples, as equally over the classes as their numbers allow."""
    if server_labels is not None:
        held = _deal(server_labels, num_validation, num_calibration, generator, "examples of the server")
        return ServerSplit(np.arange(len(labels)), held.validation, held.calibration)
    split = _deal(labels, num_validation, num_calibration, generator, "training examples")
    if not len(split.clients):
        raise _no_room(num_validation, num_calibration, len(labels), "training examples")
    return split


def _deal(
    labels: np.ndarray, num_validation: int, num_calibration: int, generator: np.random.Generator, what: str
) -> ServerSplit:
    held_out = num_validation + num_calibration
    if num_validation < 1 or num_calibration < 1 or held_out > len(labels):
        raise _no_room(num_validation, num_calibration, len(labels), what)
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


def _no_room(num_validation: int, num_calibration: int, available: int, what: str) -> InvalidInput:
    return InvalidInput(
        f"data.validation_examples = {num_validation} and data.calibration_examples = {num_calibration} "
        f"do not fit {available} {what}: each needs at least 1, and the clients need some of the training examples."
    )
