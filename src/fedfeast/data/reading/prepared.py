"""Prepared data sets: decoded once into arrays that are mapped, not read, and a dataset.json written last."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedfeast.data.examples import Dataset, Examples, Normalisation
from fedfeast.errors import InvalidInput
from fedfeast.locks import held_in_turn

DESCRIPTION = "dataset.json"
SPLITS = ("train", "test", "server")
_DISK_IS_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}

Progress = Callable[[int, int], None]  # what is done, of how much


@dataclass(frozen=True)
class DatasetFacts:
    """What a federation must know of a data set before its examples."""

    classes: int
    channels: int
    side: int  # of the square images, in pixels
    train_examples: int
    test_examples: int
    server_examples: int = 0  # an official validation split, which the server holds

    @property
    def examples(self) -> dict[str, int]:
        """The number of examples by split."""
        counts = (self.train_examples, self.test_examples, self.server_examples)
        return {split: count for split, count in zip(SPLITS, counts, strict=True) if count}


@dataclass(frozen=True, eq=False)
class Decoded:
    """A data set on its way into arrays: labels at once, images in whatever order the source holds them."""

    class_names: tuple[str, ...]
    channels: int
    side: int
    labels: Mapping[str, NDArray[np.int64]]  # by split
    images: Iterable[tuple[str, int, NDArray[np.uint8]]]  # split, first position, (examples, channels, side, side)

    @property
    def facts(self) -> DatasetFacts:
        """The facts of what was found."""
        counts = (len(self.labels.get(split, ())) for split in SPLITS)
        return DatasetFacts(len(self.class_names), self.channels, self.side, *counts)


def is_prepared(folder: Path) -> bool:
    """Tell whether a data set's folder holds finished arrays."""
    return (folder / DESCRIPTION).is_file()


def write_prepared(
    folder: Path, decoded: Decoded, description: Mapping[str, Any], on_progress: Progress | None = None
) -> dict[str, Any]:
    """Write the arrays and dataset.json of a data set into its folder, all or nothing; return what the latter says."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    size = sum(decoded.facts.examples.values()) * decoded.channels * decoded.side**2
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
        if error.errno not in _DISK_IS_FULL:
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
        facts_in(content)
        normalisation_in(content)
        for split in content["examples"]:
            for kind in ("images", "labels"):
                array = content["arrays"][f"{split}_{kind}.npy"]
                int(array["bytes"]), str(array["sha256"])
    except FileNotFoundError:
        raise InvalidInput(f"{folder} holds no {DESCRIPTION}: {_remedy(folder)}.") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{folder / DESCRIPTION} is damaged ({error!r}): {_remedy(folder)}.") from error
    return content


def facts_in(content: Mapping[str, Any]) -> DatasetFacts:
    """Return the facts that a dataset.json states."""
    counts = (int(content["examples"].get(split, 0)) for split in SPLITS)
    return DatasetFacts(int(content["classes"]), int(content["channels"]), int(content["side"]), *counts)


def normalisation_in(content: Mapping[str, Any]) -> Normalisation | None:
    """Return the official normalisation that a dataset.json states, if any."""
    stated = content["normalisation"]
    return None if stated is None else Normalisation(tuple(stated["mean"]), tuple(stated["deviation"]))


def open_prepared(folder: Path) -> Dataset:
    """Return a prepared data set, its images mapped into memory and read when touched."""
    content = read_description(folder)
    facts = facts_in(content)
    examples: dict[str, Examples] = {}
    for split, count in facts.examples.items():
        images = _map(folder, f"{split}_images.npy", content, (count, facts.channels, facts.side, facts.side), np.uint8)
        labels = _map(folder, f"{split}_labels.npy", content, (count,), np.int64)
        if labels.min() < 0 or labels.max() >= facts.classes:
            raise InvalidInput(
                f"{folder / f'{split}_labels.npy'} has labels outside 0 to {facts.classes - 1}: {_remedy(folder)}."
            )
        examples[split] = Examples(images, labels)
    server = examples.get("server")
    return Dataset(examples["train"], examples["test"], facts.classes, normalisation_in(content), server)


def _map(
    folder: Path, file: str, content: Mapping[str, Any], shape: tuple[int, ...], dtype: type[np.generic]
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
    if array.shape != shape or array.dtype != dtype:
        raise InvalidInput(
            f"{path} holds {array.dtype} {array.shape} instead of {np.dtype(dtype)} {shape}: {_remedy(folder)}."
        )
    return torch.from_numpy(array)


def _remedy(folder: Path) -> str:
    return f"prepare it again with fedfeast data prepare {folder.name} --from PATH --replace"


def _write_arrays(partial: Path, decoded: Decoded, on_progress: Progress) -> None:
    shape = (decoded.channels, decoded.side, decoded.side)
    files, starts = {}, {}
    done, total = 0, sum(decoded.facts.examples.values())
    with ExitStack() as stack:
        for split in decoded.facts.examples:
            file = files[split] = stack.enter_context((partial / f"{split}_images.npy").open("wb"))
            header = {"descr": "|u1", "fortran_order": False, "shape": (len(decoded.labels[split]), *shape)}
            npy.write_array_header_1_0(file, header)
            starts[split] = file.tell()
            np.save(partial / f"{split}_labels.npy", decoded.labels[split].astype(np.int64))
        for split, first, images in decoded.images:
            assert images.shape[1:] == shape
            # Written, not mapped: on a full disk a write fails, while a mapping kills the process.
            files[split].seek(starts[split] + first * int(np.prod(shape)))
            files[split].write(np.ascontiguousarray(images).data)
            done += len(images)
            on_progress(done, total)
    if done != total:
        raise InvalidInput(f"the source gave {done} images instead of {total}: do not change it while it is read.")


def _describe(name: str, partial: Path, decoded: Decoded, description: Mapping[str, Any]) -> dict[str, Any]:
    facts = decoded.facts
    return {
        "name": name,
        "classes": facts.classes,
        "class_names": decoded.class_names,
        "channels": facts.channels,
        "side": facts.side,
        "examples": facts.examples,
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
    for old in (DESCRIPTION, *(f"{split}_{kind}.npy" for split in SPLITS for kind in ("images", "labels"))):
        (folder / old).unlink(missing_ok=True)
    for file in sorted(partial.glob("*.npy")):
        file.replace(folder / file.name)
    (partial / DESCRIPTION).replace(folder / DESCRIPTION)
