"""The authors' server split, and splits from files; balanced ones are in test_examples.py."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from fedfeast.data import split_as_authors, split_by_file
from fedfeast.data.splits import AUTHORS_CIFAR100_CLASSES
from fedfeast.errors import InvalidInput


def digest(indices: np.ndarray) -> str:
    return hashlib.sha256(indices.astype("<i4").tobytes()).hexdigest()


def test_the_servers_cifar100_images_are_the_authors_own() -> None:
    split = split_as_authors(50_000, 4_500, 500)
    assert split.validation[:5].tolist() == [46380, 1911, 37223, 43976, 49685]
    assert digest(split.validation) == "c68c8f4616c526694cdc003f9a45fe19649d5e9a7fd502be44cc429f40218772"
    assert split.calibration[:5].tolist() == [17498, 13661, 35508, 47177, 42039]
    assert digest(split.calibration) == "b26b131c32b39610b5aa9b87e243d39b8132bdf4466a67f8e25cd7847528eee3"
    everything = np.concatenate((split.clients, split.validation, split.calibration))
    assert np.sort(everything).tolist() == list(range(50_000))
    assert split.clients[:2].tolist() != sorted(split.clients[:2])  # the pool keeps its permuted order
    assert (len(AUTHORS_CIFAR100_CLASSES), sum(AUTHORS_CIFAR100_CLASSES)) == (100, 5_000)


def test_a_server_with_examples_of_its_own_splits_those() -> None:
    split = split_as_authors(90, 81, 9, num_server=90)
    assert split.clients.tolist() == list(range(90))
    assert sorted([*split.validation, *split.calibration]) == list(range(90))
    assert split.calibration.tolist() != sorted(split.calibration)


def test_splits_without_room_are_refused() -> None:
    with pytest.raises(InvalidInput, match="do not fit 10 training examples"):
        split_as_authors(10, 6, 4)
    with pytest.raises(InvalidInput, match="do not fit 10 examples of the server"):
        split_as_authors(10, 7, 4, num_server=10)


def test_what_a_file_does_not_list_is_the_clients(tmp_path: Path) -> None:
    path = tmp_path / "split.npz"
    np.savez(path, validation=[5, 3], calibration=[1, 0])
    split = split_by_file(path, 8)
    assert split.clients.tolist() == [2, 4, 6, 7]
    assert (split.validation.tolist(), split.calibration.tolist()) == ([5, 3], [1, 0])
    assert split_by_file(path, 3, num_server=6).clients.tolist() == [0, 1, 2]
    with pytest.raises(InvalidInput, match="names the example 5, and the data have 5 training examples"):
        split_by_file(path, 5)
    np.savez(path, validation=[2, 3], calibration=[1, 0])
    with pytest.raises(InvalidInput, match="gives the server all 4 training examples"):
        split_by_file(path, 4)
