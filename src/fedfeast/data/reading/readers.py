"""The official formats: CIFAR's pickles, Fashion-MNIST's idx files, the image trees of TinyImageNet and CINIC-10."""

import gzip
import io
import pickle
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfeast.data.reading.decoded import Decoded, decoded_arrays
from fedfeast.data.reading.image_files import decode_images
from fedfeast.data.reading.sources import list_files, read_files
from fedfeast.errors import InvalidInput
from fedfeast.unpacking import gunzip

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]

FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_NO_PICKLE = (pickle.UnpicklingError, EOFError, KeyError, ValueError, TypeError, IndexError, AttributeError)


def read_cifar10(source: Path) -> Decoded:
    """Read CIFAR-10: five training batches and a test batch."""
    batches = [f"data_batch_{number}" for number in range(1, 6)]
    files = _pick(source, [*batches, "test_batch"], ["batches.meta"])
    parts = [_unpickle_cifar(source / name, files[name], b"labels", 10) for name in batches]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    names = _class_names(source, files.get("batches.meta"), b"label_names", 10)
    test = _unpickle_cifar(source / "test_batch", files["test_batch"], b"labels", 10)
    return decoded_arrays(names, {"train": (images, labels), "test": test})


def read_cifar100(source: Path) -> Decoded:
    """Read CIFAR-100 with its 100 fine labels."""
    files = _pick(source, ["train", "test"], ["meta"])
    splits = {name: _unpickle_cifar(source / name, files[name], b"fine_labels", 100) for name in ("train", "test")}
    return decoded_arrays(_class_names(source, files.get("meta"), b"fine_label_names", 100), splits)


def read_fashion_mnist(source: Path) -> Decoded:
    """Read Fashion-MNIST from its four idx files, compressed or not."""
    splits = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images = _read_idx(source, f"{prefix}-images-idx3-ubyte", 3)
        labels = _read_idx(source, f"{prefix}-labels-idx1-ubyte", 1).astype(np.int64)
        if len(images) != len(labels) or (len(labels) and labels.max() >= len(FASHION_CLASSES)):
            raise InvalidInput(
                f"{source} holds {len(images)} images but other labels ({split}): fetch its files again."
            )
        splits[split] = (images[:, None], labels)
    return decoded_arrays(FASHION_CLASSES, splits)


def read_tinyimagenet(source: Path) -> Decoded:
    """Read TinyImageNet; its labelled official validation split is the test set, since the test split has no labels."""
    names = {PurePosixPath(name).parts: name for name in list_files(source)}
    tails = {parts[-1]: name for parts, name in names.items() if parts[-1] in ("wnids.txt", "val_annotations.txt")}
    if len(tails) < 2:
        raise InvalidInput(f"{source} lacks wnids.txt or val/val_annotations.txt: fetch tiny-imagenet-200.zip again.")
    texts = {name: content.decode(errors="replace") for name, content in read_files(source, set(tails.values()))}
    classes = tuple(sorted(texts[tails["wnids.txt"]].split()))
    rows = (line.split("\t") for line in texts[tails["val_annotations.txt"]].splitlines() if line.strip())
    validated = {row[0]: row[1] for row in rows if len(row) > 1}
    labelled: dict[str, list[tuple[str, str]]] = {"train": [], "test": []}
    for parts, name in names.items():
        if parts[-4:-3] == ("train",) and parts[-2] == "images":
            labelled["train"].append((parts[-3], name))
        elif parts[-3:-1] == ("val", "images"):
            labelled["test"].append((validated.get(parts[-1], "no class"), name))
    return _decode_tree(source, classes, labelled, side=64)


def read_cinic10(source: Path) -> Decoded:
    """Read CINIC-10; its official validation split is the server's."""
    splits = {"train": "train", "valid": "server", "test": "test"}
    labelled: dict[str, list[tuple[str, str]]] = {split: [] for split in splits.values()}
    for name in list_files(source):
        parts = PurePosixPath(name).parts
        if len(parts) >= 3 and parts[-3] in splits and parts[-1].lower().endswith(".png"):
            labelled[splits[parts[-3]]].append((parts[-2], name))
    classes = tuple(sorted({label for label, _ in labelled["train"]}))
    return _decode_tree(source, classes, labelled, side=32)


def _decode_tree(
    source: Path, classes: Sequence[str], labelled: Mapping[str, Sequence[tuple[str, str]]], side: int
) -> Decoded:
    """Order every split by class and file name, so that a folder and an archive give the same arrays."""
    numbers = {name: number for number, name in enumerate(classes)}
    for rows in labelled.values():
        for label, name in rows:
            if label not in numbers:
                raise InvalidInput(f"{source / name} belongs to {label!r}, which is no class: fetch the archive again.")
    ordered = {split: sorted(rows) for split, rows in labelled.items()}
    files = {split: [name for _, name in rows] for split, rows in ordered.items()}
    labels = {split: np.array([numbers[label] for label, _ in rows], dtype=np.int64) for split, rows in ordered.items()}
    return Decoded(tuple(classes), 3, side, labels, decode_images(source, files, 3, side))


def _pick(source: Path, needed: Sequence[str], optional: Sequence[str] = ()) -> dict[str, bytes]:
    """Return the contents of files by their last names, wherever in the source they lie."""
    paths = {PurePosixPath(name).name: name for name in list_files(source)}
    for name in needed:
        if name not in paths:
            raise InvalidInput(f"{source} lacks the file {name}: fetch or unpack the official archive again.")
    wanted = {paths[name]: name for name in (*needed, *optional) if name in paths}
    return {wanted[path]: content for path, content in read_files(source, wanted.keys())}


def _unpickle_cifar(place: Path, content: bytes, label_key: bytes, classes: int) -> Arrays:
    try:
        table = _ArrayUnpickler(content).load()
        images = np.asarray(table[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        labels = np.asarray(table[label_key], dtype=np.int64)
    except _NO_PICKLE as error:
        raise InvalidInput(
            f"{place} is damaged or no official file: fetch or unpack the official archive again."
        ) from error
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise InvalidInput(f"{place} has labels outside 0 to {classes - 1}: fetch or unpack the archive again.")
    if len(images) != len(labels):
        raise InvalidInput(f"{place} holds {len(images)} images but {len(labels)} labels: unpack the archive again.")
    return images, labels


def _class_names(source: Path, content: bytes | None, key: bytes, classes: int) -> tuple[str, ...]:
    """Return the official class names, or numbers where their file was left out."""
    if content is None:
        return tuple(map(str, range(classes)))
    try:
        names = tuple(name.decode() for name in _ArrayUnpickler(content).load()[key])
    except _NO_PICKLE as error:
        raise InvalidInput(f"the class names in {source} are damaged: unpack the official archive again.") from error
    if len(names) != classes:
        raise InvalidInput(f"{source} names {len(names)} classes instead of {classes}: unpack the archive again.")
    return names


def _read_idx(source: Path, name: str, dimensions: int) -> NDArray[np.uint8]:
    """Return the array of an idx file: a magic number, the sizes, then bytes."""
    place = next((path for path in (source / name, source / f"{name}.gz") if path.is_file()), None)
    if place is None:
        raise InvalidInput(f"{source} lacks {name}.gz: fetch the official files again.")
    try:
        content = gunzip(place) if place.suffix == ".gz" else place.read_bytes()
        magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
        if magic != 0x0800 + dimensions:
            raise ValueError(f"its magic number is {magic:#x}")
        return np.frombuffer(content, np.uint8, offset=4 * (1 + dimensions)).reshape(shape)
    except InvalidInput:
        raise
    except (gzip.BadGzipFile, zlib.error, EOFError, struct.error, ValueError) as error:
        raise InvalidInput(f"{place} is damaged or incomplete ({error}): remove it and fetch it again.") from error


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

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every global but those that rebuild an array."""
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a data file")
        return super().find_class(module, name)
