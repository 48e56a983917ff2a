"""A user's own function as a data set: ``data.name = "file.py:NAME"`` calls it, where its code is trusted."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from fedfeast.data.examples import Dataset, Examples, NaturalClients
from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.facts import DatasetFacts
from fedfeast.data.reading.options import PrepareOptions
from fedfeast.data.reading.own_arrays import OwnArrays, decode_own
from fedfeast.data.reading.prepared import LABEL_TYPES
from fedfeast.data.reading.sources import suggest
from fedfeast.errors import InvalidInput, in_one_line
from fedfeast.own_code import find_own

SETTING = "data.name"
_ARRAYS = ("inputs", "labels", "clients", "test")
_WORDS = ("task", "kind", "test_share", "seed", "label_names")


def is_own(name: str) -> bool:
    """Tell a function's name from a data set's."""
    return ":" in name


def load_own(name: str) -> Dataset:
    """Return the examples that a user's function gives."""
    decoded = _decoded(name)
    arrays = {split: inputs for split, _, inputs in decoded.inputs}
    train, test = (
        Examples(
            torch.from_numpy(np.ascontiguousarray(arrays[split])),
            torch.from_numpy(decoded.labels[split].astype(LABEL_TYPES[decoded.task])),
        )
        for split in ("train", "test")
    )
    held = decoded.clients
    clients = NaturalClients(decoded.client_names, held["train"], held["test"]) if held else None
    return Dataset(train, test, len(decoded.class_names), clients=clients)


def facts_of_own(name: str) -> DatasetFacts:
    """Return the facts of what a user's function gives: it is called once."""
    return _decoded(name).facts


def class_names_of_own(name: str) -> tuple[str, ...]:
    """Return the names of the classes that a user's function gives."""
    return _decoded(name).class_names


def _decoded(name: str) -> Decoded:
    function = find_own(name, SETTING)
    if not callable(function):
        place, _, word = name.rpartition(":")
        raise InvalidInput(f"{SETTING} = {name!r}: {place} has no function {word!r}.")
    return _call(function, name)


@lru_cache(maxsize=2)  # a recipe asks for the facts first, then for the examples
def _call(function: Callable[[], Any], name: str) -> Decoded:
    try:
        found = function()
    except InvalidInput:
        raise
    except Exception as error:  # whatever a user's own code may raise
        raise InvalidInput(f"{name} raised {type(error).__name__} ({in_one_line(error)}): mend it.") from error
    if isinstance(found, tuple) and 2 <= len(found) <= len(_ARRAYS):
        found = dict(zip(_ARRAYS, found, strict=False))
    if not isinstance(found, Mapping):
        raise InvalidInput(
            f"{name} gave {type(found).__name__}: return a mapping with inputs, labels, clients and task, "
            "or a tuple (inputs, labels, clients)."
        )
    for key in found:
        if key not in (*_ARRAYS, *_WORDS):
            raise InvalidInput(
                f"{name} gave {key!r}{suggest(str(key), (*_ARRAYS, *_WORDS))}: give {', '.join((*_ARRAYS, *_WORDS))}."
            )
    missing = [key for key in ("inputs", "labels") if found.get(key) is None]
    if missing:
        raise InvalidInput(f"{name} gave no {missing[0]}: return a mapping with inputs and labels at least.")
    arrays = {key: None if found.get(key) is None else _as_array(found[key], f"{key} of {name}") for key in _ARRAYS}
    words = {key: found[key] for key in ("task", "kind", "test_share", "seed") if found.get(key) is not None}
    options = PrepareOptions(**words)
    if arrays["test"] is not None and options.test_share is not None:
        raise InvalidInput(f"{name} gave test and test_share: give one of them.")
    own = OwnArrays(name, **arrays, label_names=tuple(map(str, found.get("label_names") or ())))  # type: ignore[arg-type]
    return decode_own(own, options)


def _as_array(value: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInput(f"the {what} are no array ({error}): give examples of one shape.") from error
