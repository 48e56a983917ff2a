"""The data sets by name: embedded ones, official ones, and those that were prepared."""

import errno
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedfeast.data.examples import Dataset, Examples, Normalisation
from fedfeast.data.reading.catalogue import EMBEDDED, OFFICIAL, OfficialDataset
from fedfeast.data.reading.facts import SPLITS, DatasetFacts
from fedfeast.data.reading.own_functions import class_names_of_own, facts_of_own, is_own, load_own
from fedfeast.data.reading.prepared import (
    DESCRIPTION,
    facts_in,
    is_prepared,
    open_prepared,
    read_description,
    write_prepared,
)
from fedfeast.data.reading.preparing import (
    DATA_FOLDER_VARIABLE,
    data_folder,
    decode_official,
    describe_official,
    find_official,
    how_to_get,
    missing_archives,
    prepare_found,
)
from fedfeast.errors import InvalidInput
from fedfeast.randomness import named_generator


def load_digits() -> Dataset:
    """Return scikit-learn's 1,797 handwritten digits (8x8, grey), a fifth of each class held out as the test set."""
    table = _bundled_digits()
    images = np.round(table[:, :-1].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    labels = table[:, -1].astype(np.int64)
    # Choice: there is no official split; ours is drawn once and the same for every seed (docs/decisions/010).
    generator = named_generator(0, "digits test set")
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        members = generator.permutation(np.flatnonzero(labels == label))
        is_test[members[: len(members) // 5]] = True
    return Dataset(_examples(images, labels, ~is_test), _examples(images, labels, is_test), classes=10)


def _bundled_digits() -> NDArray[np.float64]:
    """Return scikit-learn's table: 64 pixels from 0 to 16, and the label."""
    package = find_spec("sklearn")
    assert package is not None, "scikit-learn is a dependency"
    assert package.origin is not None
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():  # importing scikit-learn takes a second, which every process of a fleet would spend
        return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits as bundled_digits

    digits = bundled_digits()
    return np.column_stack([digits.data, digits.target])


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


_EMBEDDED_LOADERS: dict[str, Callable[[], Dataset]] = {"digits": load_digits, "synthetic": load_synthetic}


def load_dataset(name: str, folder: str | None = None, official: Mapping[str, OfficialDataset] = OFFICIAL) -> Dataset:
    """Load a data set by name; an official one whose files lie in the data folder is prepared on first use."""
    if name in _EMBEDDED_LOADERS:
        return _EMBEDDED_LOADERS[name]()
    if is_own(name):
        return load_own(name)
    data = data_folder(folder)
    if is_prepared(data / name):
        return _open(data / name, official.get(name))
    if name not in official:
        facts_of(name, folder)  # says what is wrong
    found = find_official(name, official[name], data)
    if found is None:
        raise InvalidInput(
            f"the files of {name} are not in {data}: {how_to_get(name, official[name], data)}, "
            f"or point data.folder (or ${DATA_FOLDER_VARIABLE}) at the folder that holds them."
        )
    if official[name].varies and found.name != official[name].arrays:
        raise InvalidInput(
            f"{found} is not prepared, and how many examples and clients it gives shows only then: "
            f"run fedfeast data prepare {name} first."
        )
    try:
        prepare_found(name, official[name], data)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return _load_unprepared(name, official[name], found)
    return open_prepared(data / name)


def is_here(name: str, folder: str | None = None) -> bool:
    """Tell whether a data set can be loaded without fetching anything: embedded, own, prepared or its files found."""
    if name in EMBEDDED or is_own(name):
        return True
    data = data_folder(folder)
    return is_prepared(data / name) or (name in OFFICIAL and find_official(name, OFFICIAL[name], data) is not None)


def is_known(name: str, folder: str | None = None) -> bool:
    """Tell whether the facts of a data set can be looked up."""
    if name in EMBEDDED or name in OFFICIAL or is_own(name):
        return True
    data = data_folder(folder)
    arrays = (f"{split}_{array}.npy" for split in SPLITS for array in ("images", "inputs"))
    return name in prepared_names(data) or any((data / name / array).is_file() for array in arrays)


def published_normalisation(name: str) -> Normalisation | None:
    """Return the normalisation that an official data set was published with; None where there is none."""
    return OFFICIAL[name].normalisation if name in OFFICIAL else None


def facts_of(name: str, folder: str | None = None) -> DatasetFacts:
    """Return the facts of a data set: declared for embedded and official ones, else those of the prepared one.

    A user's own function is called, once.
    """
    if name in EMBEDDED:
        return EMBEDDED[name]
    if is_own(name):
        return facts_of_own(name)
    data = data_folder(folder)
    if name in OFFICIAL and OFFICIAL[name].varies and is_prepared(data / name):
        return facts_in(read_description(data / name))
    if name in OFFICIAL:
        return OFFICIAL[name].facts
    if is_known(name, folder):
        return facts_in(read_description(data / name))
    choices = ", ".join((*EMBEDDED, *OFFICIAL, *prepared_names(data)))
    raise InvalidInput(
        f"data.name = {name!r} is no data set: choose one of {choices}, "
        f"prepare your own with fedfeast data prepare {name} --from PATH (prepared ones are looked for in {data}), "
        "describe those that a fleet's clients alone have in data.description, "
        "or name a function of yours as file.py:NAME."
    )


def class_names_of(name: str, folder: str | None = None) -> tuple[str, ...]:
    """Return the names of a prepared or own data set's classes; none where it is embedded or not prepared."""
    if is_own(name):
        return class_names_of_own(name)
    place = data_folder(folder) / name
    if name in EMBEDDED or not is_prepared(place):
        return ()
    return tuple(read_description(place).get("class_names", ()))


def array_hashes(name: str, folder: str | None = None) -> dict[str, str]:
    """Return the sha256 of a prepared data set's arrays, by file; none where it is embedded or not prepared."""
    place = data_folder(folder) / name
    if name in EMBEDDED or is_own(name) or not is_prepared(place):
        return {}
    return {file: array["sha256"] for file, array in read_description(place)["arrays"].items()}


def prepared_names(data: Path) -> tuple[str, ...]:
    """Return the names of the prepared data sets in a data folder that are not official."""
    found = sorted(path.parent.name for path in data.glob(f"*/{DESCRIPTION}"))
    return tuple(name for name in found if name not in OFFICIAL and name not in EMBEDDED and not name.startswith("."))


def list_data(folder: str | Path | None = None) -> list[dict[str, Any]]:
    """Return name, facts, state and what would be needed of every known and prepared data set."""
    data = data_folder(folder)
    rows = [_row(name, facts, "embedded") for name, facts in EMBEDDED.items()]
    for name, official in OFFICIAL.items():
        found = find_official(name, official, data)
        if is_prepared(data / name):
            rows.append(_prepared_row(name, official.facts, data))
        elif found is not None and missing_archives(name, official, data):
            rows.append(_row(name, official.facts, "incomplete", how_to_get(name, official, data)))
        elif found is not None:
            state = "archive found" if found.is_file() or not official.unpacked else "unpacked files found"
            rows.append(_row(name, official.facts, state, f"nothing: prepared from {found} on first use"))
        else:
            rows.append(_row(name, official.facts, "absent", how_to_get(name, official, data)))
    return rows + [_prepared_row(name, None, data) for name in prepared_names(data)]


def _prepared_row(name: str, facts: DatasetFacts | None, data: Path) -> dict[str, Any]:
    try:
        open_prepared(data / name)
        return _row(name, facts_in(read_description(data / name)), "prepared")
    except InvalidInput as error:
        return _row(name, facts, "damaged", str(error))


def _row(name: str, facts: DatasetFacts | None, state: str, needs: str = "nothing") -> dict[str, Any]:
    stated = dict.fromkeys(DatasetFacts.__dataclass_fields__) if facts is None else asdict(facts)
    return {"name": name, **stated, "state": state, "needs": needs}


def _open(folder: Path, official: OfficialDataset | None) -> Dataset:
    actual = facts_in(read_description(folder))
    if official is not None and official.difference(actual, None) is not None:
        raise InvalidInput(f"{folder} holds {actual} instead of {official.facts}: prepare it again with --replace.")
    return open_prepared(folder)


def _load_unprepared(name: str, official: OfficialDataset, found: Path) -> Dataset:
    """Return a data set whose folder may only be read, from arrays that vanish with the process."""
    with tempfile.TemporaryDirectory() as temporary:
        # The mapped files live on without their names until the last array is gone.
        folder = Path(temporary) / name
        write_prepared(folder, decode_official(name, official, found), describe_official(official, found))
        return open_prepared(folder)


def _examples(images: np.ndarray, labels: np.ndarray, chosen: np.ndarray) -> Examples:
    images, labels = images[chosen], labels[chosen]
    return Examples(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels.astype(np.int64)))
