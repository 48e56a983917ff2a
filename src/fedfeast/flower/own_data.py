"""A client's own examples: a folder of images by class, or a Python function that yields them."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedfeast.data import DatasetFacts, Examples
from fedfeast.data.reading.image_files import decode_image
from fedfeast.errors import InvalidInput
from fedfeast.own_code import find_own, trust


def load_own_data(source: str, facts: DatasetFacts, class_names: Sequence[str] = ()) -> Examples:
    """Load a folder, or call ``file.py:function`` or ``module:function``; the examples must suit the network."""
    if Path(source).is_dir():
        return read_class_folders(Path(source), facts, class_names)
    if ":" not in source:
        raise InvalidInput(
            f"data = {source!r} is neither a folder nor a function: give a folder that holds one of images per class, "
            "or file.py:function, or module:function."
        )
    return check_examples(find_function(source)(), facts, source)


def read_class_folders(folder: Path, facts: DatasetFacts, class_names: Sequence[str]) -> Examples:
    """Read CLASS/FILES; CLASS is a class's name where the server's data set names them, or its number from 0."""
    numbers = {str(number): number for number in range(facts.classes)}
    numbers |= {name: number for number, name in enumerate(class_names)}
    images, labels = [], []
    for place in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        if place.name not in numbers:
            raise InvalidInput(
                f"{place} is named like no class of the network: name it one of {', '.join(list(numbers)[-12:])}."
            )
        for file in sorted(path for path in place.iterdir() if path.is_file() and not path.name.startswith(".")):
            images.append(decode_image(file.read_bytes(), str(file), facts.channels, facts.side, resize=True))
            labels.append(numbers[place.name])
    if not labels:
        raise InvalidInput(f"{folder} holds no images: put those of each class into a folder of its own.")
    return Examples(torch.from_numpy(np.stack(images)), torch.tensor(labels, dtype=torch.int64))


def find_function(source: str) -> Callable[[], Any]:
    """Import the function that ``file.py:function`` or ``module:function`` names: the node's own settings name it."""
    trust(source, "data")
    function = find_own(source, "data")
    if not callable(function):
        place, _, name = source.rpartition(":")
        raise InvalidInput(f"data = {source!r}: {place} has no function {name!r}.")
    found: Callable[[], Any] = function
    return found


def check_examples(found: Any, facts: DatasetFacts, source: str) -> Examples:
    """Return images and labels, given as a pair of arrays or one pair after another; refuse what does not suit."""
    if isinstance(found, Examples):
        images, labels = found.inputs.numpy(), found.labels.numpy()
    elif isinstance(found, tuple) and len(found) == 2 and not _is_pair(found):
        images, labels = np.asarray(found[0]), np.asarray(found[1])
    elif isinstance(found, Iterable):
        pairs = list(found)
        if not pairs:
            raise InvalidInput(f"{source} has no examples.")
        images, labels = (np.stack([np.asarray(part) for part in parts]) for parts in zip(*pairs, strict=True))
    else:
        raise InvalidInput(f"{source} gave {type(found).__name__}: give images and labels, or pairs of them.")
    if images.ndim == 3:
        images = images[:, None]  # grey images without an axis of channels
    if len(labels) == 0:
        raise InvalidInput(f"{source} has no examples.")
    expected = (len(labels), facts.channels, facts.side, facts.side)
    if images.shape != expected or images.dtype != np.uint8:
        raise InvalidInput(
            f"{source} has images of shape {images.shape} and {images.dtype}: the network takes {expected} and uint8."
        )
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0 or labels.max() >= facts.classes:
        raise InvalidInput(f"{source} has labels that are no whole numbers from 0 to {facts.classes - 1}.")
    return Examples(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels.astype(np.int64)))


def _is_pair(found: tuple[Any, Any]) -> bool:
    """Return whether this is one example of a sequence of two, not all images beside all labels."""
    return isinstance(found[0], tuple)
