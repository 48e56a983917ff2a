"""Client budgets in MACs and the data shares that follow from them (Section 3.1, Eq. 1)."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedfeast.errors import InvalidInput

PAPER_NUM_RANKS = 100
PAPER_LEAST_MACS = 25e6
PAPER_GREATEST_MACS = 1500e6


@dataclass(frozen=True, eq=False)
class Population:
    """The clients that take part: one inference budget and one distinct name each."""

    budgets_macs: NDArray[np.float64]  # (clients,)
    names: tuple[str, ...] = ()  # left empty: client-000, client-001, ...
    unlifted_macs: NDArray[np.float64] | None = None  # (clients,), where budgets were lifted: data shares follow these

    def __post_init__(self) -> None:
        budgets_macs = np.asarray(self.budgets_macs, dtype=np.float64)
        if budgets_macs.ndim != 1 or budgets_macs.size == 0:
            raise InvalidInput(f"Budgets have shape {budgets_macs.shape}; give one budget per client, at least one.")
        wrong = np.flatnonzero(~(np.isfinite(budgets_macs) & (budgets_macs > 0)))
        if wrong.size:
            raise InvalidInput(
                f"Client {wrong[0]} has the budget {budgets_macs[wrong[0]]}; give a positive number of MACs."
            )
        names = tuple(self.names) or _default_names(budgets_macs.size)
        if len(names) != budgets_macs.size or len(set(names)) != len(names):
            raise InvalidInput(
                f"There are {len(set(names))} distinct names for {budgets_macs.size} clients; "
                "give every client its own name, or no names at all."
            )
        object.__setattr__(self, "budgets_macs", budgets_macs)
        object.__setattr__(self, "names", names)

    @property
    def num_clients(self) -> int:
        """The number of clients N."""
        return int(self.budgets_macs.size)

    @property
    def drawn_macs(self) -> NDArray[np.float64]:
        """The budgets before any was lifted."""
        return self.budgets_macs if self.unlifted_macs is None else self.unlifted_macs

    @property
    def num_lifted(self) -> int:
        """The number of clients whose budget was lifted."""
        return int((self.drawn_macs < self.budgets_macs).sum())

    def lifted(self, least_macs: float) -> "Population":
        """Return the population in which nobody affords less than the given MACs; data shares stay what they are."""
        if (self.budgets_macs >= least_macs).all():
            return self
        lifted_macs = np.maximum(self.budgets_macs, least_macs)
        return replace(self, budgets_macs=lifted_macs, unlifted_macs=self.drawn_macs)

    def data_shares(self, gamma: float, cap_macs: float) -> NDArray[np.float64]:
        """Return q(gamma), each client's expected share of the examples; an infinite cap is no cap."""
        if not (math.isfinite(gamma) and gamma >= 0):
            raise InvalidInput(f"gamma is {gamma}; give a finite number of at least 0.")
        if not cap_macs > 0:
            raise InvalidInput(f"The allocation cap is {cap_macs} MACs; give a positive number, e.g. 600e6.")
        allocated_macs = np.minimum(self.drawn_macs, cap_macs)
        # Relative to the greatest, the largest weight is 1 for any gamma: no overflow, and no sum of 0.
        weights = (allocated_macs / allocated_macs.max()) ** gamma
        shares: NDArray[np.float64] = weights / weights.sum()
        return shares


def zipf_ranks(num_clients: int, exponent: float, num_ranks: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return one rank in 1..num_ranks per client, rank r with probability proportional to r^-exponent."""
    if num_clients < 1:
        raise InvalidInput(f"The number of clients is {num_clients}; give at least 1.")
    if num_ranks < 1:
        raise InvalidInput(f"The number of ranks is {num_ranks}; give at least 1.")
    if not (math.isfinite(exponent) and exponent >= 0):
        raise InvalidInput(f"The Zipf exponent is {exponent}; give a finite number of at least 0.")
    # Choice: Zipf over finitely many ranks, as an unbounded one would pile up at the greatest budget.
    weights = np.arange(1, num_ranks + 1, dtype=np.float64) ** -exponent
    draws = generator.choice(num_ranks, size=num_clients, p=weights / weights.sum())
    return np.asarray(draws, dtype=np.int64) + 1


def ranks_to_budgets(
    ranks: NDArray[np.int64], num_ranks: int, least_macs: float, greatest_macs: float
) -> NDArray[np.float64]:
    """Return the budgets in MACs: rank 1 the least, rank num_ranks the greatest, linear in between."""
    if num_ranks < 1:
        raise InvalidInput(f"The number of ranks is {num_ranks}; give at least 1.")
    if not (0 < least_macs <= greatest_macs < math.inf):
        raise InvalidInput(
            f"Budgets range from {least_macs} to {greatest_macs} MACs; "
            "give a positive least budget that is not above the greatest."
        )
    outside = ranks[(ranks < 1) | (ranks > num_ranks)]
    if outside.size:
        raise InvalidInput(f"Rank {outside[0]} is outside 1..{num_ranks}; draw ranks from that range.")
    # Choice: linear; the supplement with the exact map is missing, and this one fits the reported payloads.
    fraction = (ranks - 1) / max(num_ranks - 1, 1)
    # Weighted form: both ends come out exactly.
    return np.asarray((1 - fraction) * least_macs + fraction * greatest_macs, dtype=np.float64)


def zipf_population(
    num_clients: int,
    generator: np.random.Generator,
    *,
    exponent: float = 1.2,
    num_ranks: int | None = None,
    least_macs: float = PAPER_LEAST_MACS,
    greatest_macs: float = PAPER_GREATEST_MACS,
) -> Population:
    """Return a drawn, low-end-heavy population."""
    # Choice: as many ranks as clients; for N = 100 this puts the median client where the paper has it.
    ranks_in_use = num_clients if num_ranks is None else num_ranks
    ranks = zipf_ranks(num_clients, exponent, ranks_in_use, generator)
    return Population(ranks_to_budgets(ranks, ranks_in_use, least_macs, greatest_macs))


def paper_population() -> Population:
    """Return the fixed population of 100 clients that stands for the paper's."""
    text = files("fedfeast.population").joinpath("paper_ranks.csv").read_text(encoding="utf-8")
    ranks = np.array(text.split()[1:], dtype=np.int64)  # the first line is the header
    return Population(ranks_to_budgets(ranks, PAPER_NUM_RANKS, PAPER_LEAST_MACS, PAPER_GREATEST_MACS))


def read_population(path: str | Path, named: bool = False) -> Population:
    """Return the population of a CSV file with a column budget_macs and, if wanted, a column name; named: it must."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as lines:
            return _parse_population(lines, str(path), named)
    except OSError as error:
        raise InvalidInput(f"Cannot read the population file {path} ({error.strerror}); check the path.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path} is no CSV text ({error}); save it as comma-separated UTF-8.") from error


def _parse_population(lines: Iterable[str], source: str, named: bool) -> Population:
    reader = csv.DictReader(lines, skipinitialspace=True)
    columns = [column.strip() for column in reader.fieldnames or []]
    reader.fieldnames = columns
    if "budget_macs" not in columns:
        raise InvalidInput(f"{source} has no column budget_macs, only {columns}; name the column of the budgets so.")
    if named and "name" not in columns:
        raise InvalidInput(f"{source} has no column name, only {columns}; say which client a budget is of.")
    budgets_macs: list[float] = []
    names: dict[str, None] = {}  # a set that keeps its order
    for row in reader:
        where = f"{source} line {reader.line_num}"
        if None in row:
            # An unquoted 25,000,000 would otherwise be read as 25.
            raise InvalidInput(f"{where} has more values than the header; write numbers without commas.")
        budgets_macs.append(parse_positive(row["budget_macs"], "budget_macs", where, "2.5e7"))
        if "name" in columns:
            name = (row["name"] or "").strip()
            if not name or name in names:
                raise InvalidInput(f"{where} has the name {name!r}; give every client a name of its own.")
            names[name] = None
    if not budgets_macs:
        raise InvalidInput(f"{source} has no rows below the header; add one row per client.")
    return Population(np.array(budgets_macs), tuple(names))


def parse_positive(text: str | None, column: str, where: str, example: str) -> float:
    """Return the positive number that stands in a column of a file; refuse anything else."""
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise InvalidInput(f"{where} has the {column} {text!r}; write a positive number, e.g. {example}.")
    return number


def _default_names(num_clients: int) -> tuple[str, ...]:
    num_digits = max(3, len(str(num_clients - 1)))
    return tuple(f"client-{client:0{num_digits}d}" for client in range(num_clients))
