"""The server's own examples, split off first: class-balanced, by the authors' rule, or those of a file."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedfeast.errors import InvalidInput
from fedfeast.population.authors import DATA_SEED, permute_training
from fedfeast.population.index_files import read_server_indices

# How many of the 5,000 CIFAR-100 images that the authors' server holds are of each class: with these the sizes of
# their shards are known without the data.
AUTHORS_CIFAR100_CLASSES = (
    *(54, 55, 48, 52, 49, 57, 38, 52, 48, 45, 56, 52, 53, 40, 47, 41, 55, 51, 65, 52, 62, 57, 42, 46, 48),
    *(46, 50, 51, 47, 44, 50, 41, 45, 58, 39, 47, 51, 52, 53, 59, 53, 57, 39, 48, 39, 53, 46, 51, 49, 58),
    *(53, 48, 57, 58, 41, 38, 54, 58, 51, 53, 38, 55, 48, 54, 51, 43, 57, 48, 43, 56, 52, 47, 54, 50, 58),
    *(46, 49, 50, 45, 53, 45, 42, 55, 62, 43, 48, 49, 54, 51, 43, 50, 44, 57, 57, 59, 44, 51, 44, 64, 39),
)


@dataclass(frozen=True, eq=False)
class ServerSplit:
    """Positions: the clients' in training, the server's in its own examples or, without those, in training."""

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


def split_as_authors(
    num_training: int, num_validation: int, num_calibration: int, num_server: int | None = None
) -> ServerSplit:
    """Return the authors' split: not by class, in the order that they drew, the pool in its permuted order."""
    held_out, available = num_validation + num_calibration, num_training if num_server is None else num_server
    what = "training examples" if num_server is None else "examples of the server"
    if (
        num_validation < 1
        or num_calibration < 1
        or held_out > available
        or (num_server is None and held_out == available)
    ):
        raise _no_room(num_validation, num_calibration, available, what)
    if num_server is None:
        permuted, _ = permute_training(num_training)
        clients, server = permuted[held_out:], permuted[:held_out]
    else:
        clients, server = np.arange(num_training), np.arange(num_server)
    drawn = server[torch.randperm(len(server), generator=torch.Generator().manual_seed(DATA_SEED)).numpy()]
    return ServerSplit(clients, drawn[num_calibration:held_out], drawn[:num_calibration])


def split_by_file(path: str | Path, num_training: int, num_server: int | None = None) -> ServerSplit:
    """Return the split that a file lists; whatever it does not list of training is the clients'."""
    available, whose = (num_training, "training") if num_server is None else (num_server, "server")
    validation, calibration = read_server_indices(path, available, whose)
    listed = np.concatenate((validation, calibration))
    clients = np.delete(np.arange(num_training), listed) if num_server is None else np.arange(num_training)
    if not len(clients):
        raise InvalidInput(f"{path} gives the server all {num_training} training examples: leave the clients some.")
    return ServerSplit(clients, validation, calibration)


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
