"""The data sets: each a training and a test set of uint8 examples."""

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedfeast.data.examples import Examples, Normalisation
from fedfeast.errors import InvalidInput
from fedfeast.randomness import named_generator

DATA_FOLDER_VARIABLE = "FEDFEAST_DATA"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples with the number of classes; normalisation where there is an official one."""

    train: Examples
    test: Examples
    classes: int
    normalisation: Normalisation | None = None


@dataclass(frozen=True)
class DatasetFacts:
    """What is known of a data set without its files; training examples are equally many per class."""

    classes: int
    channels: int
    side: int  # of the square images, in pixels
    train_examples: int
    test_examples: int


FACTS = {
    "digits": DatasetFacts(10, 1, 8, 1442, 355),  # classes differ by a few examples
    "synthetic": DatasetFacts(10, 1, 8, 60_000, 6_000),
    "cifar10": DatasetFacts(10, 3, 32, 50_000, 10_000),
    "cifar100": DatasetFacts(100, 3, 32, 50_000, 10_000),
}


def data_folder(folder: str | None) -> Path:
    """Return where data files are looked for: the given folder, $FEDFEAST_DATA, or ~/.fedfeast/data."""
    chosen = folder or os.environ.get(DATA_FOLDER_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path.home() / ".fedfeast" / "data"


def load_digits() -> Dataset:
    """Return scikit-learn's 1,797 handwritten digits (8x8, grey), a fifth of each class held out as the test set."""
    from sklearn.datasets import load_digits as bundled_digits

    digits = bundled_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)[:, None]  # (examples, 1, 8, 8)
    labels = digits.target.astype(np.int64)
    # Choice: there is no official split; ours is drawn once and the same for every seed (docs/decisions/010).
    generator = named_generator(0, "digits test set")
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        members = generator.permutation(np.flatnonzero(labels == label))
        is_test[members[: len(members) // 5]] = True
    return Dataset(_examples(images, labels, ~is_test), _examples(images, labels, is_test), classes=10)


def load_synthetic(num_examples: int = 60_000, classes: int = 10, side: int = 8) -> Dataset:
    """Return made-up grey images, one noisy prototype per class: for tests of scale, not of learning."""
    generator = named_generator(0, "synthetic")
    prototypes = generator.integers(0, 256, (classes, 1, side, side))
    num_test = max(classes, num_examples // 10)
    labels = np.arange(num_examples + num_test) % classes
    noise = generator.integers(-64, 65, (len(labels), 1, side, side), dtype=np.int16)
    images = np.clip(prototypes[labels] + noise, 0, 255).astype(np.uint8)
    is_test = np.arange(len(labels)) >= num_examples
    return Dataset(_examples(images, labels, ~is_test), _examples(images, labels, is_test), classes)


def load_cifar10(folder: Path) -> Dataset:
    """Read CIFAR-10 from its official python files."""
    root = folder / "cifar-10-batches-py"
    train = [_read_cifar_file(root / f"data_batch_{number}", "cifar10", b"labels") for number in range(1, 6)]
    official = Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
    images, labels = (np.concatenate(parts) for parts in zip(*train, strict=True))
    test = _read_cifar_file(root / "test_batch", "cifar10", b"labels")
    return Dataset(_examples(images, labels), _examples(*test), classes=10, normalisation=official)


def load_cifar100(folder: Path) -> Dataset:
    """Read CIFAR-100 from its official python files."""
    root = folder / "cifar-100-python"
    train = _read_cifar_file(root / "train", "cifar100", b"fine_labels")
    test = _read_cifar_file(root / "test", "cifar100", b"fine_labels")
    official = Normalisation((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
    return Dataset(_examples(*train), _examples(*test), classes=100, normalisation=official)


_WITHOUT_FILES: dict[str, Callable[[], Dataset]] = {"digits": load_digits, "synthetic": load_synthetic}
_FROM_FILES: dict[str, Callable[[Path], Dataset]] = {"cifar10": load_cifar10, "cifar100": load_cifar100}
EMBEDDED = tuple(_WITHOUT_FILES)
DATASETS = (*EMBEDDED, *_FROM_FILES)


def load_dataset(name: str, folder: str | None = None) -> Dataset:
    """Load a data set by name, its files from the folder (see data_folder)."""
    if name in _WITHOUT_FILES:
        return _WITHOUT_FILES[name]()
    return _FROM_FILES[name](data_folder(folder))


def _examples(images: np.ndarray, labels: np.ndarray, chosen: np.ndarray | None = None) -> Examples:
    if chosen is not None:
        images, labels = images[chosen], labels[chosen]
    return Examples(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels.astype(np.int64)))


def _read_cifar_file(path: Path, name: str, label_key: bytes) -> tuple[np.ndarray, np.ndarray]:
    if not path.is_file():
        raise InvalidInput(
            f"{name} needs the file {path}: unpack the official python archive of {name} into {path.parent.parent}, "
            f"or point data.folder (or ${DATA_FOLDER_VARIABLE}) at the folder that holds {path.parent.name}."
        )
    try:
        with path.open("rb") as file:
            content = _ArrayUnpickler(file, encoding="bytes").load()
        images = np.asarray(content[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        labels = np.asarray(content[label_key], dtype=np.int64)
    except (
        pickle.UnpicklingError,
        EOFError,
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        AttributeError,
    ) as error:
        raise InvalidInput(f"{path} is damaged or no {name} file: unpack the official archive again.") from error
    classes = FACTS[name].classes
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise InvalidInput(f"{path} has labels outside 0 to {classes - 1}: unpack the official archive again.")
    if len(images) != len(labels):
        raise InvalidInput(f"{path} holds {len(images)} images but {len(labels)} labels: unpack the archive again.")
    return images, labels


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles numpy arrays and plain containers, and nothing that could run code."""

    _ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy._core.numeric", "_frombuffer"),
            ("numpy.core.numeric", "_frombuffer"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every global but those that rebuild an array."""
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a data file")
        return super().find_class(module, name)
