"""A user's own arrays: inputs, labels and whose each example is, checked and split into training and test examples."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfeast.data.reading.decoded import Decoded, decoded_arrays
from fedfeast.data.reading.options import PrepareOptions, count_test
from fedfeast.data.reading.prepared import LABEL_TYPES
from fedfeast.errors import InvalidInput
from fedfeast.randomness import named_generator

Array = NDArray[Any]
MOST_TOKENS = 100_000  # of a vocabulary
_KEPT_TYPES = ("uint8", "int16", "float32")  # of numbers; others become float32


@dataclass(frozen=True, eq=False)
class OwnArrays:
    """What a file or a function gives; source names it in messages."""

    source: str
    inputs: Array  # (examples, ...)
    labels: Array
    clients: Array | None = None  # a name an example
    test: Array | None = None  # which examples are for the test
    label_names: tuple[str, ...] = ()  # of several labels or targets, where they have names


def decode_own(own: OwnArrays, options: PrepareOptions) -> Decoded:
    """Check a user's arrays and hold out the test set, by client where there are some."""
    task = options.task or "classification"
    for name, array in (("labels", own.labels), ("clients", own.clients), ("test", own.test)):
        if array is not None and array.shape[:1] != own.inputs.shape[:1]:
            raise InvalidInput(
                f"{own.source} has inputs of shape {own.inputs.shape} but {name} of shape {array.shape}: "
                "the first axis is that of the examples, equally long for all."
            )
    if own.inputs.shape[:1] < (2,):
        raise InvalidInput(f"{own.source} has fewer than two examples: it needs one to train and one to test.")
    kind = options.kind or _kind_of(own.inputs, task)
    inputs = _check_inputs(own, kind)
    labels, class_names = _check_labels(own, task, inputs)
    names, held = _check_clients(own)
    if own.test is not None:
        is_test = _read_test(own)
    elif held is not None:
        is_test = _draw_test(own.source, options, names, held)
    elif task == "classification":
        is_test = _draw_test(own.source, options, class_names, labels)
    else:
        is_test = _draw_test(own.source, options, ("all",), np.zeros(len(inputs), np.int64))
    if held is not None:
        trained = np.bincount(held[~is_test], minlength=len(names))
        if not trained.all():
            raise InvalidInput(
                f"client {names[int(trained.argmin())]!r} in {own.source} has no training example: give each client "
                "one, since whole clients are held out by a recipe."
            )
    vocabulary = 0
    if kind == "tokens":
        vocabulary = int(max(inputs.max(), labels.max() if task == "next-token" else 0)) + 1
        class_names = tuple(map(str, range(vocabulary))) if task == "next-token" else class_names
    chosen = {"train": ~is_test, "test": is_test}
    return decoded_arrays(
        class_names,
        {split: (inputs[members], labels[members]) for split, members in chosen.items()},
        None if held is None else (names, {split: held[members] for split, members in chosen.items()}),
        kind=kind,
        task=task,
        vocabulary=vocabulary,
    )


def _kind_of(inputs: Array, task: str) -> str:
    """Tell the kind of data by their look: bytes in squares are images, what has a next token is tokens."""
    if task == "next-token":
        return "tokens"
    return "images" if inputs.dtype == np.uint8 and _as_images(inputs) is not None else "numbers"


def _as_images(inputs: Array) -> Array | None:
    """Return images with their channels first; None where they are no squares."""
    if inputs.ndim == 3:
        inputs = inputs[:, None]  # grey
    if inputs.ndim == 4 and inputs.shape[2] == inputs.shape[3]:
        return inputs
    if inputs.ndim == 4 and inputs.shape[1] == inputs.shape[2] and inputs.shape[3] in (1, 3):
        return np.ascontiguousarray(inputs.transpose(0, 3, 1, 2))
    return None


def _check_inputs(own: OwnArrays, kind: str) -> Array:
    inputs = own.inputs
    if inputs.dtype.kind not in "biuf":
        raise InvalidInput(f"the inputs of {own.source} are {_words(inputs)}: give an array of numbers.")
    if inputs.ndim < 2 or 0 in inputs.shape:
        raise InvalidInput(
            f"the inputs of {own.source} have shape {inputs.shape}: the first axis is that of the examples, "
            "and each needs one axis more."
        )
    if inputs.dtype.kind == "f" and not np.isfinite(inputs).all():
        row = int(np.flatnonzero(~np.isfinite(inputs.reshape(len(inputs), -1)).all(axis=1))[0])
        raise InvalidInput(
            f"the inputs of {own.source} hold NaN or infinity (first in example {row}): fill such values or leave the "
            "examples out."
        )
    if kind == "images":
        images = _as_images(inputs) if inputs.dtype == np.uint8 else None
        if images is None:
            raise InvalidInput(
                f"the inputs of {own.source} are {inputs.dtype} of shape {inputs.shape}: images are uint8 squares "
                "(examples, channels, side, side); leave out --kind images, or convert them."
            )
        return images
    if kind == "tokens":
        return _check_tokens(own)
    return inputs if inputs.dtype.name in _KEPT_TYPES else _to_float32(inputs, f"the inputs of {own.source}")


def _to_float32(values: Array, what: str) -> Array:
    with np.errstate(over="ignore"):
        small = values.astype(np.float32)
    if not np.isfinite(small).all():
        raise InvalidInput(f"{what} hold numbers beyond 3e38: divide them first.")
    return small


def _check_tokens(own: OwnArrays) -> Array:
    inputs = own.inputs
    if inputs.dtype.kind not in "iu" or inputs.ndim != 2:
        raise InvalidInput(
            f"the inputs of {own.source} are {inputs.dtype} of shape {inputs.shape}: tokens are whole numbers of shape "
            "(examples, length)."
        )
    if inputs.min() < 0 or inputs.max() >= MOST_TOKENS:
        strange = inputs.min() if inputs.min() < 0 else inputs.max()
        raise InvalidInput(
            f"the inputs of {own.source} hold the token {strange}: number tokens from 0 to {MOST_TOKENS - 1} at most."
        )
    dtype = next(kind for kind in (np.uint8, np.int16, np.int32) if inputs.max() <= np.iinfo(kind).max)
    return inputs.astype(dtype)


def _check_labels(own: OwnArrays, task: str, inputs: Array) -> tuple[Array, tuple[str, ...]]:
    """Return labels as they are stored, and the names of classes, labels or targets."""
    labels, what = own.labels, f"the labels of {own.source}"
    if labels.dtype.kind == "O":
        raise InvalidInput(f"{what} are {_words(labels)}: give numbers or plain text.")
    if task == "classification":
        return _check_classes(labels, what)
    if task == "next-token":
        return _check_next_tokens(labels, what, inputs.shape), ()
    if labels.dtype.kind not in "biuf":
        raise InvalidInput(f"{what} are {_words(labels)}: --task {task} needs numbers.")
    labels = labels.reshape(len(labels), -1) if labels.ndim < 3 else labels
    if labels.ndim > 2 or not labels.shape[1]:
        raise InvalidInput(f"{what} have shape {labels.shape}: --task {task} needs (examples, {task} labels).")
    names = own.label_names or tuple(map(str, range(labels.shape[1])))
    if len(names) != labels.shape[1]:
        raise InvalidInput(f"{what} have {labels.shape[1]} columns but {len(names)} names: give one name a column.")
    if task == "multi-label":
        if not np.isin(labels, (0, 1)).all():
            raise InvalidInput(f"{what} hold other values than 0 and 1: --task multi-label needs one of both a label.")
        return labels.astype(LABEL_TYPES[task]), names
    if not np.isfinite(labels).all():
        row = int(np.flatnonzero(~np.isfinite(labels).all(axis=1))[0])
        raise InvalidInput(f"{what} hold NaN or infinity (first in example {row}): leave such examples out.")
    return _to_float32(labels, what), names


def _check_next_tokens(labels: Array, what: str, shape: tuple[int, ...]) -> Array:
    if labels.dtype.kind not in "iu" or labels.shape != shape:
        raise InvalidInput(
            f"{what} are {labels.dtype} of shape {labels.shape}: next tokens are whole numbers of the shape "
            f"{shape} of the inputs, -1 where none counts."
        )
    if labels.min() < -1 or labels.max() >= MOST_TOKENS:
        strange = labels.min() if labels.min() < -1 else labels.max()
        raise InvalidInput(f"{what} hold the token {strange}: number tokens from 0; -1 is one that counts nowhere.")
    return labels.astype(np.int64)


def _check_classes(labels: Array, what: str) -> tuple[Array, tuple[str, ...]]:
    """Return the class of each example as a number, and the classes' names: the values, in order."""
    if labels.ndim != 1:
        raise InvalidInput(
            f"{what} have shape {labels.shape}: a class an example is one axis; "
            "else say --task next-token, multi-label or regression."
        )
    if labels.dtype.kind not in "biuUS":
        raise InvalidInput(f"{what} are {labels.dtype}: classes are whole numbers or text; else say --task regression.")
    values, numbers = np.unique(labels, return_inverse=True)
    names = tuple(_text(value) for value in values)
    if "" in names:
        raise InvalidInput(f"{what} lack one in example {int(np.flatnonzero(numbers == names.index(''))[0])}: fill it.")
    if len(names) > len(labels) / 2 and any(map(_is_fraction, names)):
        raise InvalidInput(f"{what} are numbers like {names[-1]}, most of them once: say --task regression.")
    if len(names) < 2:
        raise InvalidInput(f"{what} are of one class only ({names[0]}): a data set needs two or more.")
    return numbers.astype(np.int64), names


def _is_fraction(name: str) -> bool:
    try:
        return not float(name).is_integer()
    except ValueError:  # a word
        return False


def _check_clients(own: OwnArrays) -> tuple[tuple[str, ...], NDArray[np.int64] | None]:
    """Return the clients' names in order, and the position of each example's."""
    if own.clients is None:
        return (), None
    if own.clients.ndim != 1 or own.clients.dtype.kind not in "iuUS":
        raise InvalidInput(
            f"the clients of {own.source} are {_words(own.clients)} of shape {own.clients.shape}: "
            "give one name or whole number an example."
        )
    values, held = np.unique(own.clients, return_inverse=True)
    texts = [_text(value) for value in values]
    if "" in texts:
        row = int(np.flatnonzero(held == texts.index(""))[0])
        raise InvalidInput(f"example {row} of {own.source} has an empty client name: fill it or leave the example out.")
    names = tuple(dict.fromkeys(texts))  # blanks around a name tell no two clients apart
    if len(names) < 2:
        raise InvalidInput(
            f"{own.source} has one client only ({names[0]}): name another column, or leave out --clients."
        )
    positions = {name: number for number, name in enumerate(names)}
    return names, np.array([positions[text] for text in texts])[held]


def _draw_test(
    source: str, options: PrepareOptions, names: tuple[str, ...], groups: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Draw the same share of every client or class; one that has a single example keeps it for training."""
    order = np.argsort(groups, kind="stable")
    borders = np.cumsum(np.bincount(groups))[:-1]
    is_test = np.zeros(len(groups), bool)
    for name, members in zip(names, np.split(order, borders), strict=True):
        # By name, so that new examples of one leave the others' draw alone.
        drawn = named_generator(options.seed, "test set", name).permutation(len(members))
        is_test[members[drawn[: count_test(options.share, len(members))]]] = True
    if not is_test.any():
        raise InvalidInput(f"no client or class of {source} has two examples: name the test examples with --test.")
    return is_test


def _read_test(own: OwnArrays) -> NDArray[np.bool_]:
    """Return which examples are for the test: told by true and false, 1 and 0, or the words test and train."""
    assert own.test is not None
    words = [_text(value).lower() for value in np.unique(own.test)] if own.test.ndim == 1 else ["of several axes"]
    known = {"test": True, "train": False, "1": True, "0": False, "true": True, "false": False}
    strange = [word for word in words if word not in known]
    if strange or own.test.dtype.kind not in "biuUS":
        raise InvalidInput(
            f"the test column of {own.source} holds {(strange or [str(own.test.dtype)])[0]!r}: "
            "write test or train, 1 or 0, or true or false."
        )
    is_test = np.array([known[_text(value).lower()] for value in own.test.tolist()])
    if is_test.all() or not is_test.any():
        raise InvalidInput(
            f"all examples of {own.source} are for {'test' if is_test.all() else 'training'}: mark both."
        )
    return is_test


def _text(value: Any) -> str:
    return (value.decode(errors="replace") if isinstance(value, bytes) else str(value)).strip()


def _words(array: Array) -> str:
    kinds = {"O": "Python objects", "U": "text", "S": "bytes of text", "c": "complex numbers", "f": "fractions"}
    return kinds.get(array.dtype.kind, str(array.dtype))
