"""How fast clients train, in MACs a second: all alike, with a heavy tail of slow ones, or as a file says."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput
from fedfeast.population.budgets import parse_positive


def pareto_speeds(num_clients: int, fastest: float, tail: float, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return speeds of which a share of x^-tail lies x times or more below the fastest: the less, the heavier."""
    slowness = generator.uniform(size=num_clients) ** (-1 / tail)
    return np.asarray(fastest / slowness, dtype=np.float64)


def read_speeds(path: str | Path, names: Sequence[str]) -> NDArray[np.float64]:
    """Return the named clients' speeds from a CSV file with the columns name and macs_per_second."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as lines:
            rows = list(csv.DictReader(lines, skipinitialspace=True))
    except OSError as error:
        raise InvalidInput(
            f"simulation.speeds = {str(path)!r} cannot be read ({error.strerror}): write equal, pareto, or the path of "
            "a CSV file."
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} is no CSV text ({error}): save it as comma-separated UTF-8.") from error
    speeds: dict[str, float] = {}
    for line, row in enumerate(rows, start=2):
        if "name" not in row or "macs_per_second" not in row:
            raise InvalidInput(
                f"{path} has the columns {', '.join(map(str, row))}: name and macs_per_second are needed."
            )
        name = (row["name"] or "").strip()
        if not name or name in speeds:
            raise InvalidInput(f"{path} line {line} has the name {name!r}: give every client one row.")
        speeds[name] = parse_positive(row["macs_per_second"], "macs_per_second", f"{path} line {line}", "2.5e9")
    missing = next((name for name in names if name not in speeds), None)
    if missing is not None:
        raise InvalidInput(f"{path} has no speed of the client {missing!r}: add a row for every client.")
    return np.array([speeds[name] for name in names])
