"""A user's own files of examples: arrays in an npz file, or a table as a CSV file."""

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedfeast.data.reading.options import PrepareOptions
from fedfeast.data.reading.own_arrays import Array, OwnArrays
from fedfeast.data.reading.sources import read_arrays, suggest
from fedfeast.errors import InvalidInput


def read_own_file(path: Path, options: PrepareOptions) -> OwnArrays:
    """Read a file by its ending."""
    if options.size is not None:
        raise InvalidInput(f"--size {options.size} resizes folders of images only: leave it out for {path}.")
    if path.suffix == ".npz":
        return read_npz(path, options)
    if path.suffix == ".csv":
        return read_csv(path, options)
    raise InvalidInput(f"--from {path} is no npz or csv file and no folder: give one of these.")


def read_npz(path: Path, options: PrepareOptions) -> OwnArrays:
    """Read the arrays inputs and labels, and those that the options name."""
    labels = options.labels or "labels"
    named = {"clients": options.clients, "test": options.test}
    arrays = read_arrays(path, ["inputs", labels, *filter(None, named.values())])
    clients, test = (None if name is None else arrays[name] for name in named.values())
    return OwnArrays(str(path), arrays["inputs"], arrays[labels], clients, test)


def read_csv(path: Path, options: PrepareOptions) -> OwnArrays:
    """Read a table with a row an example: columns of labels, clients and test by name, all others are the inputs."""
    header, rows = _read_table(path)
    labels = [name.strip() for name in (options.labels or "labels").split(",")]
    named = [*labels, *filter(None, (options.clients, options.test))]
    for name in named:
        if name not in header:
            raise InvalidInput(
                f"{path} has no column {name!r}{suggest(name, header)}: it has {', '.join(header[:20])}"
                f"{', ...' if len(header) > 20 else ''}; name labels, clients and test by --labels, --clients, --test."
            )
    if len(set(named)) < len(named):
        raise InvalidInput(f"one column of {path} is named twice ({', '.join(named)}): each has one meaning.")
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    inputs = [name for name in header if name not in named]
    if not inputs:
        raise InvalidInput(f"{path} has no columns beside {', '.join(named)}: the inputs are missing.")
    values = np.stack([_numbers(path, name, columns[name]) for name in inputs], axis=1)
    return OwnArrays(
        str(path),
        values,
        _labels(path, labels, columns, options.task or "classification"),
        None if options.clients is None else np.array(columns[options.clients]),
        None if options.test is None else np.array(columns[options.test]),
        tuple(labels),
    )


def _read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return a table's column names and its rows, all equally long."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            rows = []
            for row in reader:
                if row and len(row) != len(header):
                    raise InvalidInput(
                        f"line {reader.line_num} of {path} has {len(row)} cells instead of {len(header)}: mend it."
                    )
                if row:
                    rows.append(row)
    except FileNotFoundError:
        raise InvalidInput(f"{path} does not exist: give a CSV file.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} is no CSV file in UTF-8 ({error}): save it as one.") from error
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise InvalidInput(f"{path} has one column only ({header[0]}): separate the columns by commas.")
    name, times = Counter(header).most_common(1)[0] if header else ("", 0)
    if times > 1:
        raise InvalidInput(f"{path} has two columns {name!r}: rename one of them.")
    if not rows:
        raise InvalidInput(f"{path} has no rows below its header: give a row an example.")
    return header, rows


def _labels(path: Path, names: Sequence[str], columns: dict[str, tuple[str, ...]], task: str) -> Array:
    if task == "next-token":
        raise InvalidInput(f"{path} is a table, which holds no next tokens: give them as an npz file.")
    if task == "classification":
        if len(names) > 1:
            raise InvalidInput(
                f"--labels {','.join(names)} names several columns: say --task multi-label or regression."
            )
        cells = np.array([cell.strip() for cell in columns[names[0]]])
        try:
            return cells.astype(np.int64)
        except ValueError:
            return cells
    return np.stack([_numbers(path, name, columns[name]) for name in names], axis=1)


def _numbers(path: Path, name: str, cells: Sequence[str]) -> Array:
    """Return a column as numbers."""
    try:
        return np.array(cells).astype(np.float64)
    except ValueError:
        for row, cell in enumerate(cells):
            if not _is_number(cell):
                raise InvalidInput(
                    f"row {row + 1} of {path} has {cell!r} in the column {name!r}, which is no number: mend the cell, "
                    "drop the column, or name it with --labels, --clients or --test."
                ) from None
        raise


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
