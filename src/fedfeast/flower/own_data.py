"""A client's own examples: a folder of images by class, or a Python function that yields examples of any kind."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedfeast.data import DatasetFacts, Examples
from fedfeast.data.reading.image_files import decode_image
from fedfeast.errors import InvalidInput
from fedfeast.own_code import find_own, trust

Array = NDArray[Any]


def load_own_data(source: str, facts: DatasetFacts, class_names: Sequence[str] = ()) -> Examples:
    """Load a folder, or call ``file.py:function`` or ``module:function``; the examples must suit the network."""
    if Path(source).is_dir():
        if facts.kind != "images" or facts.task != "classification":
            raise InvalidInput(
                f"data = {source!r} is a folder, and the network takes {facts.kind} for {facts.task}: give "
                "file.py:function or module:function, which returns inputs and labels."
            )
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
    """Return inputs and labels, given as a pair of arrays or one pair after another; refuse what does not suit."""
    if isinstance(found, Examples):
        inputs, labels = found.inputs.numpy(), found.labels.numpy()
    elif isinstance(found, tuple) and len(found) == 2 and not _is_pair(found):
        inputs, labels = np.asarray(found[0]), np.asarray(found[1])
    elif isinstance(found, Iterable):
        pairs = list(found)
        if not pairs:
            raise InvalidInput(f"{source} has no examples.")
        inputs, labels = (np.stack([np.asarray(part) for part in parts]) for parts in zip(*pairs, strict=True))
    else:
        raise InvalidInput(f"{source} gave {type(found).__name__}: give inputs and labels, or pairs of them.")
    if len(labels) == 0:
        raise InvalidInput(f"{source} has no examples.")
    inputs, labels = _check_inputs(inputs, len(labels), facts, source), _check_labels(labels, facts, source)
    return Examples(torch.from_numpy(np.ascontiguousarray(inputs)), torch.from_numpy(np.ascontiguousarray(labels)))


def _check_inputs(inputs: Array, num_examples: int, facts: DatasetFacts, source: str) -> Array:
    if inputs.ndim == 3 and facts.kind == "images":
        inputs = inputs[:, None]  # grey images without an axis of channels
    types = {"images": "u", "numbers": "biuf", "tokens": "iu"}[facts.kind]
    wanted = {"images": "uint8", "numbers": "numbers", "tokens": "whole numbers"}[facts.kind]
    expected, suits = (num_examples, *facts.input_shape), inputs.dtype.kind in types
    if inputs.shape != expected or not suits or (facts.kind == "images" and inputs.dtype != np.uint8):
        raise InvalidInput(
            f"{source} has {_inputs_of(facts)} of shape {inputs.shape} and {inputs.dtype}: the network takes "
            f"{expected} and {wanted}."
        )
    if facts.kind == "tokens":
        if inputs.min() < 0 or inputs.max() >= facts.vocabulary:
            raise InvalidInput(f"{source} has tokens that are no whole numbers from 0 to {facts.vocabulary - 1}.")
        return inputs.astype(np.int64)
    # Bytes are scaled by 255 wherever they lie, so they stay bytes; other numbers are taken as they are.
    return inputs if inputs.dtype == np.uint8 else _as_float32(inputs, f"{source} has inputs")


def _check_labels(labels: Array, facts: DatasetFacts, source: str) -> Array:
    if facts.task == "regression" and labels.ndim == 1:
        labels = labels[:, None]
    if labels.shape[1:] != facts.label_shape:
        raise InvalidInput(
            f"{source} has labels of shape {labels.shape}: {facts.task} needs {(len(labels), *facts.label_shape)}."
        )
    if facts.task == "regression":
        return _as_float32(labels, f"{source} has labels")
    least = -1 if facts.task == "next-token" else 0  # -1 counts nowhere
    most = 1 if facts.task == "multi-label" else facts.classes - 1
    if labels.dtype.kind not in "biu" or labels.min() < least or labels.max() > most:
        raise InvalidInput(f"{source} has labels that are no whole numbers from {least} to {most}.")
    return labels.astype(np.uint8 if facts.task == "multi-label" else np.int64)


def _as_float32(numbers: Array, what: str) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        small = numbers.astype(np.float32) if numbers.dtype.kind in "biuf" else np.full(1, np.nan, np.float32)
    if not np.isfinite(small).all():
        raise InvalidInput(f"{what} that are no finite numbers in float32.")
    return small


def _inputs_of(facts: DatasetFacts) -> str:
    return "images" if facts.kind == "images" else "inputs"


def _is_pair(found: tuple[Any, Any]) -> bool:
    """Return whether this is one example of a sequence of two, not all inputs beside all labels."""
    return isinstance(found[0], tuple)
