"""The fixed cache of variants that are trained and served (Sec. 3.2), and its CSV file."""

import csv
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from fedfeast.errors import InvalidInput
from fedfeast.networks import ElasticNetwork, ElasticResNet

COSTS = ("macs", "params")  # columns of every cache, before those of the network's own choices
# Columns that a cache may have: by which MACs budgets are compared, and which MACs its makers published.
PRICE, STATED = "price", "stated"
GREATEST_COST = 10**15  # MACs that these may state: a million networks of a thousand million

Ties = Literal["refuse", "keep"]  # what becomes of variants of equal price: an error, or all stay in the file's order


@dataclass(frozen=True)
class Variant:
    """One served network: its architecture and what it costs."""

    architecture: Any  # of the network's family, hashable
    macs: int
    parameters: int
    listed_price: int | None = None  # in MACs, where its cache has prices
    stated_macs: int | None = None  # what its makers say that it costs, where its cache has that

    @property
    def price(self) -> int:
        """The MACs that budgets are compared with: those of the cache's price column, else its own."""
        return self.macs if self.listed_price is None else self.listed_price

    @classmethod
    def of(cls, network: ElasticNetwork, architecture: Any) -> "Variant":
        """Count an architecture's cost in this network."""
        network.validate(architecture)
        return cls(architecture, network.macs(architecture), network.parameters(architecture))


@dataclass(frozen=True)
class VariantCache:
    """The variants, sorted by price: by MACs, unless the cache says otherwise."""

    variants: tuple[Variant, ...]

    @classmethod
    def of(cls, variants: Sequence[Variant], ties: Ties = "refuse") -> "VariantCache":
        """Sort the variants by price; one of each price, so that 'the largest' is never a tie, unless ties are kept."""
        ordered = tuple(sorted(variants, key=lambda variant: variant.price))
        for one, following in pairwise(ordered):
            if one.price == following.price and ties == "refuse":
                raise InvalidInput(
                    f"two variants cost {one.price} MACs: keep one of them in the cache, or set variants.ties=keep, "
                    "so that both count and the later row is the larger one."
                )
        if not ordered:
            raise InvalidInput("the variant cache is empty: give at least one variant.")
        return cls(ordered)

    def __len__(self) -> int:
        return len(self.variants)

    def __iter__(self) -> Iterator[Variant]:
        return iter(self.variants)

    def __getitem__(self, position: int) -> Variant:
        return self.variants[position]

    def affordable(self, budget_macs: float) -> tuple[Variant, ...]:
        """Return A_i: the variants whose price does not exceed the budget, least first (Eq. 3)."""
        return self.variants[: bisect_right(self.variants, budget_macs, key=lambda variant: variant.price)]

    @property
    def is_priced(self) -> bool:
        """Whether budgets are compared with other MACs than the variants have."""
        return any(variant.listed_price is not None for variant in self.variants)


def packaged_caches() -> tuple[str, ...]:
    """Return the names of the caches that ship with the package."""
    files = resources.files("fedfeast.variants").joinpath("caches").iterdir()
    return tuple(sorted(file.name.removesuffix(".csv") for file in files if file.name.endswith(".csv")))


def read_cache(name_or_path: str, network: ElasticNetwork, ties: Ties = "refuse") -> VariantCache:
    """Read a packaged cache by name or a CSV file by path, checked row by row against the network."""
    if name_or_path in packaged_caches():
        text = resources.files("fedfeast.variants").joinpath("caches", f"{name_or_path}.csv").read_text()
    else:
        path = Path(name_or_path)
        if not path.is_file():
            raise InvalidInput(
                f"variant cache {name_or_path!r} is neither a file nor one of {', '.join(packaged_caches())}: "
                "set variants.cache to one of those names or to a CSV file."
            )
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    columns = (*COSTS, *network.columns(network.smallest))
    try:
        rows.fieldnames = [column.strip() for column in rows.fieldnames or ()]
        _check_header(rows.fieldnames, columns, name_or_path)
        variants = [_read_row(row, network, f"{name_or_path}:{rows.line_num}") for row in rows]
    except csv.Error as error:
        raise InvalidInput(f"variant cache {name_or_path!r} is damaged ({error}): restore the file.") from error
    return VariantCache.of(variants, ties)


def write_cache(
    cache: VariantCache,
    network: ElasticNetwork,
    path: Path,
    further: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Write the cache, with further columns if wanted, as a CSV file that read_cache reads."""
    columns: dict[str, Sequence[Any]] = {PRICE: [one.price for one in cache]} if cache.is_priced else {}
    if all(one.stated_macs is not None for one in cache):
        columns[STATED] = [one.stated_macs for one in cache]
    columns |= further or {}
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COSTS, *network.columns(network.smallest), *columns])
        for row, variant in enumerate(cache):
            choices = network.columns(variant.architecture).values()
            further_values = (values[row] for values in columns.values())
            writer.writerow([variant.macs, variant.parameters, *choices, *further_values])


def _check_header(header: Sequence[str], columns: Sequence[str], name_or_path: str) -> None:
    """Refuse a header that lacks a column, has one twice, or writes a further one in other letters."""
    missing = [column for column in columns if column not in header]
    if missing:
        raise InvalidInput(
            f"variant cache {name_or_path!r} lacks the column {missing[0]}: it needs {', '.join(columns)}."
        )
    twice = next((column for column in (*columns, PRICE, STATED) if header.count(column) > 1), None)
    if twice is not None:
        raise InvalidInput(f"variant cache {name_or_path!r} has the column {twice} twice: leave one of them out.")
    near = next((one for one in header if one.lower() in (PRICE, STATED) and one != one.lower()), None)
    if near is not None:
        raise InvalidInput(
            f"variant cache {name_or_path!r} has the column {near!r}: write {near.lower()}, or call it something else."
        )


def _read_row(row: Mapping[str, str | None], network: ElasticNetwork, place: str) -> Variant:
    try:
        architecture = network.read_columns(row)
        macs, parameters = (int(row[column] or "") for column in COSTS)
        convolution_macs = int(row["conv_macs"] or "") if isinstance(network, ElasticResNet) else 0
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"variant cache {place} is damaged ({list(row.values())}): restore the file or build it again."
        ) from error
    variant = Variant.of(network, architecture)
    if isinstance(network, ElasticResNet):
        fits = _fits_any_head(network, variant, macs, parameters, convolution_macs)
    else:
        fits = (macs, parameters) == (variant.macs, variant.parameters)
    if not fits:
        raise InvalidInput(
            f"variant cache {place} records {macs} MACs and {parameters} parameters, but this network's "
            f"{architecture} has {variant.macs} and {variant.parameters}: "
            "the cache is damaged or belongs to another space; variants.cache=searched makes one for this space."
        )
    price, stated = (_read_cost(row, column, place) for column in (PRICE, STATED))
    return replace(variant, listed_price=price, stated_macs=stated)


def _read_cost(row: Mapping[str, str | None], column: str, place: str) -> int | None:
    """Return a further cost of a row; None where the cache has no such column."""
    if column not in row:
        return None
    text = (row[column] or "").strip()
    # Python converts no number of thousands of digits.
    number = int(text) if text.isdecimal() and len(text) <= len(str(GREATEST_COST)) else 0
    if not 0 < number <= GREATEST_COST:
        shown = text if len(text) <= 40 else f"{text[:20]}... ({len(text)} characters)"
        raise InvalidInput(
            f"variant cache {place} has {shown or 'nothing'!r} in its column {column}: give every row a whole number "
            f"of MACs above 0 and up to {GREATEST_COST:.0e}, or leave the column out."
        )
    return number


def _fits_any_head(network: ElasticResNet, variant: Variant, macs: int, parameters: int, convolution_macs: int) -> bool:
    """Only the head depends on the classes, so one cache serves data sets of any number of classes."""
    space = network.space
    head_inputs = space.stage_width(variant.architecture, space.num_stages - 1)
    classes, rest = divmod(macs - convolution_macs, head_inputs)
    recorded = variant.parameters + (classes - space.classes) * (head_inputs + 1)
    return not rest and convolution_macs == network.convolution_macs(variant.architecture) and parameters == recorded
