"""Prepared data sets: decoded once into arrays that are mapped, not read, and a dataset.json written last."""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedfeast.data.examples import Dataset, Examples, NaturalClients, Normalisation
from fedfeast.data.reading.decoded import Decoded
from fedfeast.data.reading.facts import KINDS, SPLITS, TASKS, DatasetFacts
from fedfeast.errors import InvalidInput
from fedfeast.locks import held_in_turn
from fedfeast.whole_files import DISK_IS_FULL

DESCRIPTION = "dataset.json"

_INPUT_TYPES = {
    "images": ("uint8",),
    "numbers": ("uint8", "int16", "float32"),
    "tokens": ("uint8", "int16", "int32", "int64"),
}
LABEL_TYPES = {"classification": "int64", "next-token": "int64", "multi-label": "uint8", "regression": "float32"}

Progress = Callable[[int, int], None]  # what is done, of how much


def is_prepared(folder: Path) -> bool:
    """Tell whether a data set's folder holds finished arrays."""
    return (folder / DESCRIPTION).is_file()


def write_prepared(
    folder: Path, decoded: Decoded, description: Mapping[str, Any], on_progress: Progress | None = None
) -> dict[str, Any]:
    """Write the arrays and dataset.json of a data set into its folder, all or nothing; return what the latter says."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    size = (
        sum(decoded.facts.examples.values()) * math.prod(decoded.facts.input_shape) * np.dtype(decoded.dtype).itemsize
    )
    with full_disk_is_named(folder.parent, f"{folder.name} needs {size / 1e6:.3g} MB there"):
        try:
            partial.mkdir()
            _write_arrays(partial, decoded, on_progress or (lambda done, total: None))
            content = _describe(folder.name, partial, decoded, description)
            (partial / DESCRIPTION).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            _put_in_place(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return content


@contextmanager
def full_disk_is_named(folder: Path, needed: str) -> Iterator[None]:
    """Say in one sentence that a folder's disk is full, and what for."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_IS_FULL:
            raise
        raise InvalidInput(
            f"the disk of {folder} is full ({error.strerror}): {needed}; "
            "free it, or choose a folder on another disk with $FEDFEAST_DATA."
        ) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time write into a data folder; the others wait."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InvalidInput(f"{folder} is not a folder: choose another data folder with $FEDFEAST_DATA.") from None
    with held_in_turn(folder / ".lock"):
        yield


def read_description(folder: Path) -> dict[str, Any]:
    """Return what dataset.json says, checked to be whole."""
    try:
        content: dict[str, Any] = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        facts = facts_in(content)
        normalisation_in(content)
        for split in content["examples"]:
            for file in _files_of(split, facts):
                array = content["arrays"][file]
                int(array["bytes"]), str(array["sha256"])
    except FileNotFoundError:
        raise InvalidInput(f"{folder} holds no {DESCRIPTION}: {_remedy(folder)}.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{folder / DESCRIPTION} is damaged ({error!r}): {_remedy(folder)}.") from error
    return content


def facts_in(content: Mapping[str, Any]) -> DatasetFacts:
    """Return the facts that a dataset.json states."""
    train, test, server = (int(content["examples"].get(split, 0)) for split in SPLITS)
    facts = DatasetFacts(
        int(content["classes"]),
        int(content["channels"]),
        int(content["side"]),
        train,
        test,
        server,
        kind=content.get("kind", "images"),
        task=content.get("task", "classification"),
        shape=tuple(map(int, content.get("shape", ()))),
        clients=len(content.get("client_names", ())),
        vocabulary=int(content.get("vocabulary", 0)),
    )
    if facts.kind not in KINDS or facts.task not in TASKS or (facts.kind != "images" and not facts.shape):
        raise ValueError(f"it says {facts.kind} of shape {facts.shape} for {facts.task}")
    return facts


def normalisation_in(content: Mapping[str, Any]) -> Normalisation | None:
    """Return the official normalisation that a dataset.json states, if any."""
    stated = content["normalisation"]
    return None if stated is None else Normalisation(tuple(stated["mean"]), tuple(stated["deviation"]))


def open_prepared(folder: Path) -> Dataset:
    """Return a prepared data set, its inputs mapped into memory and read when touched."""
    content = read_description(folder)
    facts = facts_in(content)
    examples: dict[str, Examples] = {}
    clients: dict[str, NDArray[np.int64]] = {}
    for split, count in facts.examples.items():
        inputs_file, labels_file, *clients_file = _files_of(split, facts)
        inputs = _map(folder, inputs_file, content, (count, *facts.input_shape), _INPUT_TYPES[facts.kind])
        labels = _map(folder, labels_file, content, (count, *facts.label_shape), (LABEL_TYPES[facts.task],))
        wrong = wrong_labels(labels.numpy(), facts.task, facts.classes)
        if wrong:
            raise InvalidInput(f"{folder / labels_file} has {wrong}: {_remedy(folder)}.")
        if facts.kind == "tokens" and not 0 <= int(inputs.min()) <= int(inputs.max()) < facts.vocabulary:
            raise InvalidInput(
                f"{folder / inputs_file} has tokens outside 0 to {facts.vocabulary - 1}: {_remedy(folder)}."
            )
        examples[split] = Examples(inputs, labels)
        for file in clients_file:
            clients[split] = _map(folder, file, content, (count,), ("int64",)).numpy()
            if clients[split].min() < 0 or clients[split].max() >= facts.clients:
                raise InvalidInput(f"{folder / file} has clients outside 0 to {facts.clients - 1}: {_remedy(folder)}.")
    natural = NaturalClients(tuple(content["client_names"]), clients["train"], clients["test"]) if clients else None
    return Dataset(
        examples["train"],
        examples["test"],
        facts.classes,
        normalisation_in(content),
        examples.get("server"),
        natural,
    )


def wrong_labels(labels: NDArray[Any], task: str, classes: int) -> str:
    """Say what is wrong with the values of labels, by task; nothing where they are right."""
    if task == "regression":
        return "" if np.isfinite(labels).all() else "labels that are no finite numbers"
    least = -1 if task == "next-token" else 0  # -1 counts nowhere
    most = 1 if task == "multi-label" else classes - 1
    return "" if least <= labels.min() and labels.max() <= most else f"labels outside {least} to {most}"


def _files_of(split: str, facts: DatasetFacts) -> list[str]:
    """Return the names of a split's arrays: inputs, labels, and clients where there are some."""
    inputs = "images" if facts.kind == "images" else "inputs"
    clients = ["clients"] if facts.clients and split != "server" else []
    return [f"{split}_{array}.npy" for array in (inputs, "labels", *clients)]


def _map(
    folder: Path, file: str, content: Mapping[str, Any], shape: tuple[int, ...], dtypes: Sequence[str]
) -> torch.Tensor:
    path, size = folder / file, int(content["arrays"][file]["bytes"])
    if not path.is_file():
        raise InvalidInput(f"{path} is missing: {_remedy(folder)}.")
    if path.stat().st_size != size:
        raise InvalidInput(f"{path} has {path.stat().st_size} bytes instead of {size}: {_remedy(folder)}.")
    try:
        # Copy on write: torch takes no read-only memory, and the file stays as it is either way.
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidInput(f"{path} is damaged ({error}): {_remedy(folder)}.") from error
    if array.shape != shape or array.dtype.name not in dtypes:
        raise InvalidInput(
            f"{path} holds {array.dtype} {array.shape} instead of {' or '.join(dtypes)} {shape}: {_remedy(folder)}."
        )
    return torch.from_numpy(array)


def _remedy(folder: Path) -> str:
    return f"prepare it again with fedfeast data prepare {folder.name} --from PATH --replace"


def _write_arrays(partial: Path, decoded: Decoded, on_progress: Progress) -> None:
    facts, dtype, example_bytes = decoded.facts, np.dtype(decoded.dtype), _bytes_of_one(decoded)
    files, starts = {}, {}
    done, total = 0, sum(facts.examples.values())
    with ExitStack() as stack:
        for split, count in facts.examples.items():
            inputs_file, labels_file, *clients_file = _files_of(split, facts)
            file = files[split] = stack.enter_context((partial / inputs_file).open("wb"))
            header = {"descr": dtype.str, "fortran_order": False, "shape": (count, *facts.input_shape)}
            npy.write_array_header_1_0(file, header)
            starts[split] = file.tell()
            np.save(partial / labels_file, decoded.labels[split].astype(LABEL_TYPES[facts.task]))
            for name in clients_file:
                np.save(partial / name, decoded.clients[split].astype(np.int64))
        for split, first, inputs in decoded.inputs:
            assert inputs.shape[1:] == facts.input_shape
            assert inputs.dtype == dtype
            # Written, not mapped: on a full disk a write fails, while a mapping kills the process.
            files[split].seek(starts[split] + first * example_bytes)
            files[split].write(np.ascontiguousarray(inputs).data)
            done += len(inputs)
            on_progress(done, total)
    if done != total:
        raise InvalidInput(
            f"the source gave {done} {facts.kind} instead of {total}: do not change it while it is read."
        )


def _bytes_of_one(decoded: Decoded) -> int:
    """Return the size of one example's inputs."""
    return math.prod(decoded.facts.input_shape) * np.dtype(decoded.dtype).itemsize


def _describe(name: str, partial: Path, decoded: Decoded, description: Mapping[str, Any]) -> dict[str, Any]:
    facts = decoded.facts
    form: dict[str, Any] = {}
    if facts.kind != "images" or facts.task != "classification" or facts.clients:
        form = {"kind": facts.kind, "task": facts.task, "shape": facts.shape}
        form |= {"vocabulary": facts.vocabulary} if facts.vocabulary else {}
        form |= {"client_names": decoded.client_names} if facts.clients else {}
    return {
        "name": name,
        "classes": facts.classes,
        "class_names": decoded.class_names,
        "channels": facts.channels,
        "side": facts.side,
        "examples": facts.examples,
        **form,
        **description,
        "arrays": {file.name: _fingerprint(file) for file in sorted(partial.glob("*.npy"))},
    }


def _fingerprint(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def _put_in_place(partial: Path, folder: Path) -> None:
    """Move the arrays into the folder, which may hold the official files too; dataset.json leaves first, comes last."""
    folder.mkdir(exist_ok=True)
    arrays = [f"{split}_{array}.npy" for split in SPLITS for array in ("images", "inputs", "labels", "clients")]
    for old in (DESCRIPTION, *arrays):
        (folder / old).unlink(missing_ok=True)
    for file in sorted(partial.glob("*.npy")):
        file.replace(folder / file.name)
    (partial / DESCRIPTION).replace(folder / DESCRIPTION)
