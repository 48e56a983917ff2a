"""Files that say by index which training examples a client, or the server, holds."""

import csv
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput
from fedfeast.population.partition import Shards
from fedfeast.unpacking import refuse_bomb

Indices = NDArray[np.int64]
ZIP_MAGIC = b"PK"
LONGEST_INDEX = 18  # digits


@dataclass(frozen=True, eq=False)
class ListedShards:
    """Whose each listed training example is; the file's clients may be numbers or names of the population's."""

    source: str
    clients: tuple[str, ...] | None  # None: the population's, in its order
    shards: Shards  # of indices of training examples

    def arranged(self, names: Sequence[str]) -> Shards:
        """Return the shards in the order of the population's clients, each of which must have its own."""
        numbered = {str(number): number for number in range(len(names))}
        if self.clients is None:
            clients, places, remedy = tuple(map(str, range(len(self.shards)))), numbered, "give each of them one shard"
        elif _are_other_numbers(names):
            # A number could be meant either way.
            clients, places = self.clients, {name: at for at, name in enumerate(names)}
            remedy = "its names are numbers, so write those names, not the places of its rows"
        else:
            clients, places = self.clients, numbered | {name: at for at, name in enumerate(names)}
            remedy = "name one of them, or number them from 0"
        unknown = next((one for one in clients if one not in places), None)
        if unknown is not None:
            raise InvalidInput(
                f"{self.source} has examples of the client {unknown!r}, and the population has {len(names)} clients, "
                f"{names[0]!r} to {names[-1]!r}: {remedy}."
            )
        held: dict[int, Indices] = {}
        for client, shard in zip(clients, self.shards, strict=True):
            if places[client] in held:
                raise InvalidInput(
                    f"{self.source} lists the client {names[places[client]]!r} twice: call it one thing."
                )
            held[places[client]] = shard
        missing = next((name for at, name in enumerate(names) if not len(held.get(at, ()))), None)
        if missing is not None:
            raise InvalidInput(
                f"{self.source} has no examples of the client {missing!r}: give every one of the population's "
                f"{len(names)} clients some."
            )
        sizes = [len(held[at]) for at in range(len(names))]
        order = np.concatenate([held[at] for at in range(len(names))])
        return Shards(order, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))


def read_shards(path: str | Path, num_training: int) -> ListedShards:
    """Read whose each example is: arrays indices and offsets of an npz file, or columns client and index of a CSV."""
    clients: tuple[str, ...] | None
    if _is_npz(path, "partition.file"):
        order, offsets = _read_arrays(path, ("indices", "offsets"))
        if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(order) or (np.diff(offsets) < 0).any():
            raise InvalidInput(
                f"the offsets of {path} do not divide its {len(order)} indices: give clients + 1 numbers that rise "
                "from 0 to the number of indices."
            )
        clients = None
    else:
        groups = _read_groups(path, "client", num_training, "training")
        clients, order = tuple(groups), np.concatenate(list(groups.values()))
        offsets = np.cumsum([0, *map(len, groups.values())]).astype(np.int64)
    _check_indices(order, num_training, str(path), "training")
    return ListedShards(str(path), clients, Shards(order, offsets))


def read_server_indices(path: str | Path, num_examples: int, whose: str) -> tuple[Indices, Indices]:
    """Read the server's validation and calibration examples: arrays so named, or columns part and index of a CSV."""
    parts = ("validation", "calibration")
    if _is_npz(path, "data.split_file"):
        validation, calibration = _read_arrays(path, parts)
    else:
        groups = _read_groups(path, "part", num_examples, whose)
        other = next((part for part in groups if part not in parts), None)
        if other is not None:
            raise InvalidInput(f"{path} has the part {other!r}: write validation or calibration.")
        validation, calibration = (groups.get(part, np.empty(0, dtype=np.int64)) for part in parts)
    if len(validation) < 1 or len(calibration) < 2:  # batch statistics need two examples
        raise InvalidInput(
            f"{path} has {len(validation)} validation and {len(calibration)} calibration examples: "
            "give at least 1 and 2."
        )
    _check_indices(np.concatenate((validation, calibration)), num_examples, str(path), whose)
    return validation, calibration


def _is_npz(path: str | Path, setting: str) -> bool:
    """Tell an npz file from text by how it begins: a run folder keeps its copy without a suffix."""
    try:
        with open(path, "rb") as file:
            return file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
    except OSError as error:
        raise InvalidInput(f"{setting} = {str(path)!r} cannot be read ({error.strerror}); check the path.") from error


def _read_arrays(path: str | Path, names: Sequence[str]) -> list[Indices]:
    try:
        # Opened here: of a damaged file numpy would leave its own open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            refuse_bomb(Path(path), sum(entry.file_size for entry in arrays.zip.infolist()))
            missing = next((name for name in names if name not in arrays), None)
            if missing is not None:
                held = ", ".join(sorted(arrays)) or "nothing"
                raise InvalidInput(
                    f"{path} has no array {missing!r}, only {held}: name its arrays {' and '.join(names)}."
                )
            found = [arrays[name] for name in names]
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path} is a damaged npz file ({error}): write it again with numpy.savez.") from error
    for name, array in zip(names, found, strict=True):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InvalidInput(
                f"{name} in {path} is {array.dtype} of shape {array.shape}: give a row of whole numbers."
            )
    return [array.astype(np.int64) for array in found]


def _read_groups(path: str | Path, column: str, num_examples: int, whose: str) -> dict[str, Indices]:
    """Return the indices of a CSV by the value of a column beside them, in the order of first appearance."""
    groups: dict[str, list[int]] = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, skipinitialspace=True)
            columns = [name.strip() for name in reader.fieldnames or []]
            reader.fieldnames = columns
            if column not in columns or "index" not in columns:
                raise InvalidInput(f"{path} has the columns {columns}: name them {column} and index.")
            for row in reader:
                group, index = (row[column] or "").strip(), (row["index"] or "").strip()
                if not group or not index.isdecimal():
                    raise InvalidInput(
                        f"{path} line {reader.line_num} has {column} {group!r} and index {index!r}: "
                        "write one training example's number, counted from 0, in every row."
                    )
                # Python converts no number of thousands of digits.
                number = int(index) if len(index) <= LONGEST_INDEX else num_examples
                if number >= num_examples:
                    raise InvalidInput(_of_other_data(f"{path} line {reader.line_num}", index, num_examples, whose))
                groups.setdefault(group, []).append(number)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} is neither an npz file nor CSV text ({error}): save it as one of them.") from error
    if not groups:
        raise InvalidInput(f"{path} has no rows below the header: add one row per example.")
    return {group: np.array(members, dtype=np.int64) for group, members in groups.items()}


def _check_indices(indices: Indices, num_examples: int, source: str, whose: str) -> None:
    """Refuse indices of other data, and those that stand twice."""
    outside = indices[(indices < 0) | (indices >= num_examples)]
    if outside.size:
        raise InvalidInput(_of_other_data(source, str(outside[0]), num_examples, whose))
    ordered = np.sort(indices)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if twice.size:
        raise InvalidInput(
            f"{source} names the example {twice[0]} twice ({len(twice)} such): give every example to one alone."
        )


def _of_other_data(source: str, index: str, num_examples: int, whose: str) -> str:
    shown = index if len(index) <= 40 else f"{index[:20]}... ({len(index)} digits)"
    return (
        f"{source} names the example {shown}, and the data have {num_examples} {whose} examples, counted from 0: it "
        "belongs to other data."
    )


def _are_other_numbers(names: Sequence[str]) -> bool:
    """Return whether a client is named by a number that is not that of its place."""
    return any(name.isdecimal() and (name.lstrip("0") or "0") != str(at) for at, name in enumerate(names))
